"""Whole engines of a hybrid model on one folder: states come back with their pages, or neither."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pegainfer_core.offload.disk_segment import read_shape
from tests.hf import cases
from tests.offload import test_disk_serves as pages
from tests.offload.disk_bench import ROOT


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    pages.make_patient(monkeypatch)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cases.small_qwen35(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture(scope="module")
def cold(model: Path) -> list[list[int]]:
    return pages.serve(model, None).token_ids


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory, model: Path, cold: list[list[int]]) -> Path:
    """A folder with pages and states of the prompts, as the first engine leaves it."""
    folder = tmp_path_factory.mktemp("left")
    first = pages.serve(model, folder)
    assert first.token_ids == cold and max(first.num_cached) == 0
    assert {path.name for path in segments(folder)} == {"g0-000000.seg", "g1-000000.seg"}
    return folder


@pytest.fixture
def folder(tmp_path: Path, left: Path) -> Path:
    return Path(shutil.copytree(left, tmp_path / "kv"))


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("v1-*/*.seg"))


def test_a_restarted_engine_finds_pages_and_states(
    model: Path, folder: Path, cold: list[list[int]]
) -> None:
    served = pages.serve(model, folder)
    assert served.token_ids == cold and min(served.num_cached) >= 160


def test_with_damaged_states_no_page_is_restored(
    model: Path, folder: Path, cold: list[list[int]]
) -> None:
    segment = segments(folder)[1]
    shape = read_shape(segment)
    assert shape is not None
    with segment.open("r+b") as file:
        for number in range(min(shape.num_slots, 100)):
            file.seek(shape.records_offset + number * shape.record_bytes + 40)
            file.write(b"\x55\xaa\x55")
    served = pages.serve(model, folder)
    assert served.token_ids == cold and max(served.num_cached) == 0


def test_an_engine_killed_while_saving_leaves_right_states(
    model: Path, tmp_path: Path, cold: list[list[int]]
) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.offload import test_disk_serves as t;"
        "import pytest; t.make_patient(pytest.MonkeyPatch());"
        "t.PROMPTS = [f'{turn} {p}' if turn else p for turn in range(40) for p in t.PROMPTS];"
        "t.serve(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(model), str(tmp_path)],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    deadline_s = time.monotonic() + 60
    while not any(map(pages.has_records, tmp_path.glob("v1-*/g1-*.seg"))):
        assert process.poll() is None and time.monotonic() < deadline_s
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert pages.serve(model, tmp_path).token_ids == cold
    again = pages.serve(model, tmp_path)
    assert again.token_ids == cold and min(again.num_cached) >= 160
