from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .plugin_site import PluginSite


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PluginSite]:
    """A fresh folder of distributions on sys.path, and no plugin settings in the environment."""
    for name in ("PEGAINFER_PLUGINS", "PEGAINFER_STRICT_PLUGINS", "PEGAINFER_TRACE_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    made = PluginSite(folder)
    yield made
    for module in made.modules:
        sys.modules.pop(module, None)
