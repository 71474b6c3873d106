from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .scripted_engine import Script
from .served import Server, serving


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
