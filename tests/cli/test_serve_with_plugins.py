"""Case P01 and the hooks, on a running `pegainfer serve`: third parties are seen, never fatal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pegainfer_core.testing import byte_tokenizer

from ..plugin_host.plugin_site import PluginSite

READY_TIMEOUT_S = 60.0

WATCHER = """
import json
import os


def note(**what):
    with open(os.environ["WATCHER_FILE"], "a") as file:
        file.write(json.dumps(what) + "\\n")


@hookimpl
def engine_ready(engine, family, plan):
    note(hook="engine_ready", backend=engine.info.backend, family=family.id, plan=plan.vocab_size)


@hookimpl
def engine_stopping():
    note(hook="engine_stopping")


@hookimpl
def request_finished(record):
    note(hook="request_finished", reason=record.finish_reason, tokens=record.completion_tokens)


@hookimpl
def server_routes():
    from litestar import get

    @get("/watcher", sync_to_thread=False)
    def watch() -> str:
        return "watching"

    return [watch]
"""

SHADOW = """
@hookimpl
def model_families():
    return [Family("echo", "echo")]
"""

REG = """
@hookimpl
def model_families():
    yield Family("half", "echo")
    raise RuntimeError("only half done")
"""

REFUSER = "@hookimpl\ndef engine_ready():\n    raise OSError('the licence has expired')\n"


class Serving(NamedTuple):
    """A running server."""

    process: subprocess.Popen[str]
    url: str
    notes: Path

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return str(answer.read().decode())

    def post(self, path: str, body: object) -> dict[str, object]:
        request = urllib.request.Request(
            self.url + path,
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            decoded: dict[str, object] = json.loads(answer.read())
            return decoded

    def stop(self) -> str:
        """Stop it with SIGTERM; returns what it said on stderr."""
        self.process.send_signal(signal.SIGTERM)
        err = self.process.communicate(timeout=30)[1]
        assert self.process.returncode == 0, err
        return err


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """An echo model with the byte tokenizer."""
    folder = tmp_path / "model"
    folder.mkdir()
    config = {"model_type": "echo", "vocab_size": 1024, "max_position_embeddings": 256}
    (folder / "config.json").write_text(json.dumps(config))
    byte_tokenizer(folder)
    return folder


def start(model: Path, site: Path, notes: Path, **environ: str) -> subprocess.Popen[str]:
    command = [str(Path(sys.executable).parent / "pegainfer"), "serve", str(model), "--port", "0"]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(site), "WATCHER_FILE": str(notes), **environ},
    )


@pytest.fixture
def serving(model: Path, tmp_path: Path) -> Iterator[Serving]:
    site = PluginSite(tmp_path / "site")
    site.folder.mkdir()
    site.install("ok", WATCHER)
    site.install("imp", "import a_module_that_is_not_there\n")
    site.install("reg", REG)
    site.install("shadow", SHADOW)
    allowed = "echo,server,qwen3,ok,imp,reg,shadow,ghost"
    process = start(model, site.folder, tmp_path / "notes", PEGAINFER_PLUGINS=allowed)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.match(r"ready on (http://\S+)", line):
                yield Serving(process, found[1], tmp_path / "notes")
                break
        else:
            pytest.fail(f"the server did not start: {process.communicate()[1]}")
    finally:
        process.kill()
        process.communicate()


def test_it_serves_beside_broken_plugins_and_calls_the_sound_one(serving: Serving) -> None:
    answer = serving.post("/v1/completions", {"prompt": "ab", "max_tokens": 4})
    assert answer["choices"][0]["text"] == "abab"  # type: ignore[index]
    assert serving.get("/watcher") == "watching"
    err = serving.stop()
    notes = [json.loads(line) for line in serving.notes.read_text().splitlines()]
    # Records travel on a thread of their own, so the last two may come in either order.
    assert notes[:1] + sorted(notes[1:], key=lambda note: note["hook"], reverse=True) == [
        {"hook": "engine_ready", "backend": "echo", "family": "echo", "plan": 1024},
        {"hook": "request_finished", "reason": "length", "tokens": 4},
        {"hook": "engine_stopping"},
    ]
    warnings = [line for line in err.splitlines() if line.startswith("pegainfer: warning:")]
    assert len(warnings) == 4
    for name, cause in (
        ("imp", "a_module_that_is_not_there"),
        ("reg", "only half done"),
        ("shadow", "pegainfer-echo"),
        ("ghost", "not installed"),
    ):
        (warning,) = [line for line in warnings if f"'{name}'" in line]
        assert cause in warning


def test_a_plugin_may_stop_the_start(model: Path, tmp_path: Path) -> None:
    site = PluginSite(tmp_path / "site")
    site.folder.mkdir()
    site.install("refuser", REFUSER)
    process = start(model, site.folder, tmp_path / "notes", PEGAINFER_PLUGINS="echo,server,refuser")
    err = process.communicate(timeout=READY_TIMEOUT_S)[1]
    assert process.returncode == 2
    assert "plugin 'refuser' (package dist-refuser 1.0) stopped the start" in err
    assert "the licence has expired" in err and "Traceback" not in err


def test_strict_stops_before_anything_starts(model: Path, tmp_path: Path) -> None:
    site = PluginSite(tmp_path / "site")
    site.folder.mkdir()
    site.install("imp", "import a_module_that_is_not_there\n")
    process = start(model, site.folder, tmp_path / "notes", PEGAINFER_STRICT_PLUGINS="1")
    out, err = process.communicate(timeout=READY_TIMEOUT_S)
    assert process.returncode == 2 and out == ""
    assert err.startswith("pegainfer: error: plugin 'imp'") and err.count("\n") == 1
