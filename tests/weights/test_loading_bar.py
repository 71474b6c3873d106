"""The progress bar of a load: on a terminal only."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from pegainfer_core.weights import loading_bar


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_shows_the_share_read(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with loading_bar() as progress:
        assert progress is not None
        progress(250, 1000)
        progress(1000, 1000)
    shown = terminal.getvalue()
    assert "loading weights" in shown and "100%" in shown and "1.00k/1.00k" in shown


def test_is_silent_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with loading_bar() as progress:
        assert progress is None
    assert capsys.readouterr() == ("", "")


def test_a_worker_imports_what_it_needs() -> None:
    """Each of these costs every engine process megabytes and tenths of a second."""
    code = (
        "import sys, pegainfer_core.engine.worker, pegainfer_qwen3.engine;"
        "print(sorted({'asyncio', 'tqdm', 'litestar', 'tokenizers', 'cupy', 'triton', 'torch'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
