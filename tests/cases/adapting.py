"""Adapters for the cases, and what is asked of engines that hold them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pegainfer_core.contract import AdapterEngine
from pegainfer_core.testing.tiny import tiny_adapter

if TYPE_CHECKING:
    from pegainfer_core.contract import AdapterInfo
    from pegainfer_core.testing.conformance.session import Session

TIMEOUT_S = 30.0


class AdapterFolders(NamedTuple):
    """Of the model F3: `x` and `y` change every module, `other_x` is `x` trained again."""

    x: Path
    y: Path
    other_x: Path


@pytest.fixture(scope="session")
def adapters(f3: Path, tmp_path_factory: pytest.TempPathFactory) -> AdapterFolders:
    """Adapters of several ranks and scales."""
    root = tmp_path_factory.mktemp("adapters")
    return AdapterFolders(
        tiny_adapter(root / "x", f3, rank=4, seed=1),
        tiny_adapter(root / "y", f3, rank=17, alpha=17.0, use_rslora=True, seed=2),
        tiny_adapter(root / "other_x", f3, rank=6, seed=3),
    )


def engine_of(session: Session) -> AdapterEngine:
    """The session's engine, which takes adapters."""
    assert isinstance(session.handle, AdapterEngine)
    return session.handle


def load_adapter(
    session: Session, name: str, folder: Path, *, replace: bool = False
) -> AdapterInfo:
    """Load one beside whatever runs."""
    return engine_of(session).load_adapter(name, str(folder), replace=replace).result(TIMEOUT_S)


def unload_adapter(session: Session, name: str) -> AdapterInfo:
    """Take one out."""
    return engine_of(session).unload_adapter(name).result(TIMEOUT_S)
