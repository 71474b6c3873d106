from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pegainfer_server.parsing import ChatParsers

from pegainfer_core.text import REASONING_PARSERS, TOOL_PARSERS

from .scripted_engine import Script
from .served import Server, serving
from .spoken import TEMPLATE, Spoken


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server a module; `server` resets its script before each test."""
    with serving(tmp_path_factory.mktemp("model")) as server:
        yield server


@pytest.fixture
def server(shared: Server) -> Server:
    fresh = Script()
    for name, value in vars(fresh).items():
        setattr(shared.script, name, value)
    shared.records.clear()
    return shared


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a test's own server keeps its tokenizer."""
    return tmp_path / "model"


@pytest.fixture(scope="session")
def talkers_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose model thinks and calls tools; `talker` resets its script before each test."""
    parsers = ChatParsers(reasoning=REASONING_PARSERS["think"], tools=TOOL_PARSERS["hermes"])
    folder, script = tmp_path_factory.mktemp("talker"), Spoken(structured=True)
    with serving(folder, script, chat_template=TEMPLATE, parsers=parsers) as server:
        yield server


@pytest.fixture
def talker(talkers_server: Server) -> Server:
    for name, value in vars(Spoken()).items():
        setattr(talkers_server.script, name, value)
    talkers_server.records.clear()
    return talkers_server


@pytest.fixture
def script(talker: Server) -> Spoken:
    """What the talker says and hears."""
    assert isinstance(talker.script, Spoken)
    return talker.script
