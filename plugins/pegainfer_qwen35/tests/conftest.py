"""Tiny checkpoints, built once a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hf import cases

Checkpoint = Callable[[str], Path]


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """`checkpoint(case)`: the folder that a golden exists for, made when first asked for."""
    base = tmp_path_factory.mktemp("qwen35")

    def folder(case: str) -> Path:
        path = base / case
        return path if path.exists() else cases.build(case, path)

    return folder


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One layer of each kind, for tests of many steps."""
    return cases.small_qwen35(tmp_path_factory.mktemp("small") / "m")
