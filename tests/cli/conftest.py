from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pegainfer_core.cli.main import main

from ..plugin_host.plugin_site import PluginSite


class Outcome(NamedTuple):
    """What a command line came to."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


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


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `pegainfer WORDS...` in this process, loading only `plugins` when given."""

    def run_main(*words: str, plugins: str | None = None) -> Outcome:
        if plugins is not None:
            monkeypatch.setenv("PEGAINFER_PLUGINS", plugins)
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return Outcome(code, out, err)

    return run_main
