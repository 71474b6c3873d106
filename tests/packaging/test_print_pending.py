from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .wheelhouse import ROOT

SCRIPT = ROOT / "tools" / "print_pending.py"


def run(toml: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "pending.toml"
    path.write_text(toml)
    code = (
        f"import sys, runpy, pathlib; main = runpy.run_path({str(SCRIPT)!r})['main']; "
        f"sys.exit(main(pathlib.Path({str(path)!r})))"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_the_list_is_printed(tmp_path: Path) -> None:
    done = run(
        '[[pending]]\ncase = "S07c"\nissue = "Kimi-K2"\nreason = "needs its tokenizer"\n', tmp_path
    )
    assert done.returncode == 0
    assert "sub-cases left to later issues: 1" in done.stdout
    assert "  S07c  Kimi-K2  needs its tokenizer" in done.stdout


def test_an_entry_without_a_reason_fails(tmp_path: Path) -> None:
    done = run('[[pending]]\ncase = "S07c"\nissue = 5\nwhy = "?"\n', tmp_path)
    assert done.returncode == 1
    assert "S07c lacks 'reason'" in done.stderr and "unknown key 'why'" in done.stderr


def test_a_missing_file_fails(tmp_path: Path) -> None:
    code = (
        f"import runpy, pathlib; print(runpy.run_path({str(SCRIPT)!r})['main'](pathlib.Path('x')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout == "1\n" and "x is missing" in done.stderr
