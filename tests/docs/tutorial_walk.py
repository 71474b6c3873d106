"""Follows the tutorial: writes the files it shows, runs its commands, asks the server.

Everything is renamed on the way, so that it does not meet the installed original, and so that a
plugin which starts as a renamed copy is known to work.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from itertools import pairwise
from pathlib import Path

from tests.docs.pages import PLUGIN_DOCS, blocks, commands, files

SERVE_ADDRESS = "http://127.0.0.1:8000"
_READY_S = 60.0
_BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


class Walk:
    """A folder in which the tutorial is followed.

    Attributes:
        folder: The current directory of the commands.
        site: Where packages are installed.
        output: What each command printed, by the command.
        answers: What the server answered, in order.
        log: What the server printed.
    """

    def __init__(self, folder: Path) -> None:
        self.site = folder / "site"
        self.site.mkdir()
        self.folder = folder
        self.output: dict[str, str] = {}
        self.answers: list[bytes] = []
        self.log = ""
        self._server: subprocess.Popen[bytes] | None = None
        self._url = ""

    def follow(self) -> None:
        """Go through the whole page. The first block installs what is there already."""
        page = PLUGIN_DOCS / "tutorial.md"
        _, *rest = blocks(page, "sh")
        for block in rest:
            for words in commands(renamed(block.text)):
                self._do(words)
            if self.folder != self.site.parent and not (self.folder / "pyproject.toml").exists():
                for name, text in files(page).items():
                    (self.folder / renamed(name)).write_text(renamed(text), encoding="utf-8")

    def get(self, path: str) -> bytes:
        """Ask the server."""
        with urllib.request.urlopen(self._url + path, timeout=_READY_S) as response:
            body: bytes = response.read()
            return body

    def install_module(self, dist: str, entry: str, source: str) -> None:
        """Install a distribution of one module with one entry point."""
        module = dist.replace("-", "_")
        (self.site / f"{module}.py").write_text(source, encoding="utf-8")
        info = self.site / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[pegainfer.plugins]\n{entry} = {module}\n")

    def stop(self) -> int:
        """Stop the server as Ctrl-C does, and return its exit code."""
        assert self._server is not None
        self._server.send_signal(signal.SIGINT)
        self.log += self._server.communicate(timeout=_READY_S)[0].decode()
        return self._server.returncode

    def kill(self) -> None:
        """Leave nothing running, however the walk ended."""
        if self._server is not None and self._server.poll() is None:
            self._server.kill()
            self._server.communicate()

    def _do(self, words: list[str]) -> None:
        if words[0] == "cd":
            self.folder = self.folder / words[1]
        elif words == ["pip", "install", "-e", "."]:
            self._install()
        elif words[:2] == ["pegainfer", "serve"]:
            self._serve(words)
        elif words[0] == "curl":
            self.answers.append(self._curl(words[1:]))
        else:
            self.output[shlex.join(words)] = self._run(words)

    def _run(self, words: list[str]) -> str:
        done = subprocess.run(
            _command(words),
            cwd=self.folder,
            env=self._environ(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=180,
        )
        assert done.returncode == 0, f"$ {shlex.join(words)}\n{done.stdout}"
        return done.stdout

    def _install(self) -> None:
        """What pip would do, without it and offline: build a wheel and unpack it."""
        with tempfile.TemporaryDirectory() as wheels:
            self._run([sys.executable, "-c", _BUILD, wheels])
            (wheel,) = Path(wheels).glob("*.whl")
            zipfile.ZipFile(wheel).extractall(self.site)

    def _serve(self, words: list[str]) -> None:
        port = words.index("--port") + 1
        self._server = subprocess.Popen(
            _command([*words[:port], "0", *words[port + 1 :]]),
            cwd=self.folder,
            env=self._environ(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert self._server.stdout is not None
        self.log = self._server.stdout.readline().decode()
        assert " on http://" in self.log, self.log + self._server.stdout.read().decode()
        self._url = self.log.split(" on ", 1)[1].partition(",")[0]
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + _READY_S
        while True:
            try:
                self.get("/health")
                return
            except OSError:
                assert time.monotonic() < deadline_s, "the server did not become ready"
                time.sleep(0.05)

    def _curl(self, words: list[str]) -> bytes:
        """The few of curl's flags that the page uses."""
        values = dict(pairwise(words))
        (url,) = [word for word in words if word.startswith(SERVE_ADDRESS)]
        name, _, value = values["-H"].partition(": ")
        data = values["-d"].encode()
        json.loads(data)
        request = urllib.request.Request(
            self._url + url.removeprefix(SERVE_ADDRESS), data, {name: value}
        )
        with urllib.request.urlopen(request, timeout=_READY_S) as response:
            body: bytes = response.read()
            return body

    def _environ(self) -> dict[str, str]:
        own = {k: v for k, v in os.environ.items() if not k.startswith("PEGAINFER_")}
        # The installed original passes level 1 already; what is new here is static.
        level_0 = {"PYTEST_ADDOPTS": "-k L0"}
        return own | level_0 | {"PYTHONPATH": str(self.site), "PYTHONUNBUFFERED": "1"}


def renamed(text: str) -> str:
    """The tutorial's plugin under another name."""
    return text.replace("echo", "parrot").replace("Echo", "Parrot")


def _command(words: list[str]) -> list[str]:
    first = {
        "pegainfer": [sys.executable, "-m", "pegainfer_core.cli.main"],
        "python": [sys.executable],
    }
    return [*first.get(words[0], words[:1]), *words[1:]]
