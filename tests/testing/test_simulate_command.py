"""`tools/simulate.py`: it prints what its pages say, and stays close to what was measured."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def simulate(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "tools/simulate.py", *words]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )


def test_simulated_figures_are_close_to_measured_ones() -> None:
    done = simulate("validate", "c16", "poisson16")
    assert done.returncode == 0, done.stderr
    off = [int(percent) for percent in re.findall(r"([+-]\d+) % \|", done.stdout)]
    assert len(off) == 9
    assert max(map(abs, off)) <= 10, done.stdout


def test_modelled_steps_are_close_to_measured_ones() -> None:
    done = simulate("steps")
    off = [int(percent) for percent in re.findall(r"([+-]\d+) % \|", done.stdout)]
    assert len(off) == 13
    assert max(map(abs, off)) <= 15, done.stdout


def test_policies_differ_and_another_scheduler_is_not_needed() -> None:
    done = simulate("policies", "poisson16", "--policy", "present", "--policy", "512")
    assert done.returncode == 0, done.stderr
    rows = dict(re.findall(r"^\| (present|512) \| (.*) \|$", done.stdout, re.MULTILINE))
    itl_p99 = {name: float(cells.split(" | ")[2]) for name, cells in rows.items()}
    assert itl_p99["512"] < 0.8 * itl_p99["present"]


def test_long_prompts_stop_streams_unless_a_target_holds() -> None:
    done = simulate("mixed", "--policy", "whole", "--policy", "itl-20")
    assert done.returncode == 0, done.stderr
    rows = dict(re.findall(r"^\| (whole|itl-20) \| (.*) \|$", done.stdout, re.MULTILINE))
    figures = {
        name: [float(cell.replace(",", "")) for cell in cells.split(" | ")]
        for name, cells in rows.items()
    }
    _, p99, longest, *_ = figures["itl-20"]
    assert 15 < p99 <= 20 < longest < 25
    assert figures["whole"][2] > 500


def test_an_unknown_load_is_refused() -> None:
    done = simulate("run", "burst9")
    assert done.returncode == 2
    assert "there is no load 'burst9'" in done.stderr
