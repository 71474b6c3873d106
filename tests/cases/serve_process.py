"""`pegainfer serve` as a user starts it: a process with an engine process below it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil

from tests.cases.http_server import HttpServer

COMMAND = Path(sys.executable).parent / "pegainfer"
START_TIMEOUT_S = 60.0
POLL_S = 0.02


class ServeProcess:
    """A started server, ready or not.

    Attributes:
        url: Where it listens, once it has said so.
    """

    def __init__(self, words: list[str], log: Path, env: Mapping[str, str]) -> None:
        self._log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [str(COMMAND), "serve", *words],
                stdout=out,
                stderr=subprocess.STDOUT,
                # One BLAS thread, or idle ones of several servers would fight for the cores.
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **env},
            )
        self.family: set[psutil.Process] = {psutil.Process(self.process.pid)}
        self.url = ""
        self._servers: list[HttpServer] = []

    def output(self) -> str:
        """What it has printed so far, both streams."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait_listening(self) -> HttpServer:
        """Wait for the first line, which names the address."""
        self.wait_for(lambda: " on http://" in self.output())
        match = re.search(r" on (http://[^,\s]+),", self.output())
        assert match is not None, self.output()
        self.url = match[1]
        self._servers.append(HttpServer(self.url))
        return self._servers[-1]

    def wait_ready(self) -> HttpServer:
        """Wait until requests are served."""
        server = self.wait_listening()
        self.wait_for(lambda: server.get("/health").status_code == 200)
        self.children()
        return server

    def children(self) -> set[psutil.Process]:
        """All processes below it that live; those seen once are remembered."""
        try:
            found = set(psutil.Process(self.process.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            found = set()
        self.family |= found
        return found

    @property
    def engine(self) -> psutil.Process:
        """The engine process."""
        (found,) = self.children()
        return found

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait for a condition as long as the server lives."""
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < deadline_s, self.output()
            time.sleep(POLL_S)

    def wait_exit(self, timeout_s: float) -> int:
        """Exit status, once it has ended and nothing of it is left."""
        code = self.process.wait(timeout_s)
        _, alive = psutil.wait_procs(self.family, timeout=timeout_s)
        assert not alive, f"left behind: {alive}"
        return code

    def terminate(self) -> None:
        """What a supervisor sends first."""
        self.process.send_signal(signal.SIGTERM)

    def kill_all(self) -> None:
        """Leave nothing behind, whatever the test came to."""
        for server in self._servers:
            server.close()
        self.children()
        for process in self.family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()


@contextlib.contextmanager
def serve_process(
    *words: str | Path, log: Path, env: Mapping[str, str] | None = None
) -> Iterator[ServeProcess]:
    """Start `pegainfer serve WORDS...` on a free port unless the words name one.

    Args:
        *words: The command line behind `serve`.
        log: File for what it prints.
        env: Additions to the environment.
    """
    line = [str(word) for word in words]
    if "--port" not in line:
        line += ["--port", "0"]
    started = ServeProcess(line, log, env or {})
    try:
        yield started
    finally:
        started.kill_all()
