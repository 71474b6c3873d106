from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pegainfer_bench.startup import ServerProcess
from pegainfer_echo.checkpoint import write_checkpoint

from pegainfer_core.cli.main import main
from plugins.pegainfer_bench.tests.scripted_server import ScriptedServer

ROOT = Path(__file__).resolve().parents[3]


class Done(NamedTuple):
    """What a command line came to."""

    code: int
    out: str
    err: str


Bench = Callable[..., Done]


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Run `pegainfer bench WORDS...` in this process."""
    for name in ("OPENAI_API_KEY", "PEGAINFER_PLUGINS"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: object) -> Done:
        code = main(["bench", *map(str, words)])
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return run


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    made = ScriptedServer()
    yield made
    made.close()


@pytest.fixture(scope="session")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of the model that repeats its prompt."""
    folder = tmp_path_factory.mktemp("echo")
    write_checkpoint(folder)
    return folder


@pytest.fixture(scope="session")
def echo_url(echo: Path) -> Iterator[str]:
    """Our own server, as a process, 2 ms a token."""
    words = [str(echo), "--port", "0", "--in-process", "--echo-decode-ms", "2"]
    with ServerProcess(words, 60) as started:
        started.wait_listening()
        started.wait_ready()
        yield started.url
