"""A subcommand imports what it needs and no more."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import pegainfer_bench.plugin", "numpy httptools uvloop asyncio matplotlib tqdm"),
        ("import pegainfer_bench.serve_command", "numpy cupy pegainfer_server matplotlib jinja2"),
        ("import pegainfer_bench.latency_command", "cupy pegainfer_server matplotlib"),
        ("import pegainfer_bench.startup_command", "cupy pegainfer_server matplotlib"),
        ("import pegainfer_bench.kernels_command", "cupy pegainfer_server matplotlib httptools"),
    ],
)
def test_what_is_not_imported(code: str, absent: str) -> None:
    code += f"\nimport sys\nfound = [name for name in {absent.split()!r} if name in sys.modules]"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nassert not found, found"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
