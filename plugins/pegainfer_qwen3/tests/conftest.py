"""Tiny checkpoints, built once a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hf import cases


class Checkpoints:
    """The checkpoints that goldens exist for, each made when first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, case: str) -> Path:
        path = self._folder / case
        return path if path.exists() else cases.build(case, path)


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    return Checkpoints(tmp_path_factory.mktemp("qwen3"))
