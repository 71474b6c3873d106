"""Whole engines on one folder, one after the other: pages come back from disk, tokens are right."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pegainfer_echo.checkpoint import write_checkpoint

from pegainfer_core import LLM, SamplingParams
from pegainfer_core.offload import HostGrowth, Worth, lower_tier, worth
from pegainfer_core.offload.disk_segment import read_shape
from pegainfer_core.plugin import PluginFault, UserFault
from pegainfer_core.testing import tiny_qwen3

from .disk_bench import ROOT, WAIT_S

PROMPTS = [f"{number}: the quick brown fox jumps over the lazy dog, " * 4 for number in range(3)]
PARAMS = SamplingParams(max_tokens=6, temperature=0.0, ignore_eos=True)


class Served(msgspec.Struct, frozen=True):
    """What the prompts were answered with, and how many of their tokens came from a cache."""

    token_ids: list[list[int]]
    num_cached: list[int]


def serve(model: Path, folder: Path | None) -> Served:
    """Start an engine, answer the prompts, and stop; what is to be saved is saved by then."""
    options: dict[str, str | float] = {}
    if folder is not None:
        options = {"kv_offload": "host,disk", "kv_offload_disk_path": str(folder)}
        options |= {"kv_offload_host_gib": 0.0625, "kv_offload_disk_gib": 0.25}
    with LLM(model, **options) as llm:
        answers = llm.generate(PROMPTS, PARAMS)
    return Served(
        [list(answer.token_ids) for answer in answers],
        [answer.num_cached_tokens for answer in answers],
    )


def make_patient(patch: pytest.MonkeyPatch) -> None:
    """On a busy machine a tiny model computes before memory is there, or before a tier answers."""
    grow = HostGrowth.__init__

    def grown(self: HostGrowth, *arguments: Any) -> None:
        grow(self, *arguments)
        self.join()

    patch.setattr(HostGrowth, "__init__", grown)
    patch.setattr(Worth, "pays", lambda self, num_by_source: True)
    patch.setattr(worth, "_LEAST_PATIENCE_S", WAIT_S)
    patch.setattr(lower_tier, "_LOOKUP_S", WAIT_S)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    make_patient(monkeypatch)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture(scope="module")
def cold(model: Path) -> list[list[int]]:
    return serve(model, None).token_ids


@pytest.fixture
def folder(tmp_path: Path, model: Path, cold: list[list[int]]) -> Path:
    """A folder with the pages of the prompts."""
    first = serve(model, tmp_path / "kv")
    assert first.token_ids == cold and max(first.num_cached) == 0
    return tmp_path / "kv"


def test_a_restarted_engine_finds_its_pages(
    model: Path, folder: Path, cold: list[list[int]]
) -> None:
    served = serve(model, folder)
    assert served.token_ids == cold and min(served.num_cached) >= 160


def test_another_models_pages_are_not_taken(
    model: Path, folder: Path, cold: list[list[int]], tmp_path: Path
) -> None:
    """It has the same sizes, and other values."""
    other = tiny_qwen3(tmp_path / "other", seed=1)
    served = serve(other, folder)
    assert max(served.num_cached) == 0 and served.token_ids == serve(other, None).token_ids
    assert served.token_ids != cold and len(list(folder.glob("v1-*"))) == 2


def spoil_pages(segment: Path) -> None:
    """Every record gets a few other bytes, its trailer and its header stay."""
    shape = read_shape(segment)
    assert shape is not None
    with segment.open("r+b") as file:
        for number in range(min(shape.num_slots, 100)):
            file.seek(shape.records_offset + number * shape.record_bytes + 40 * number)
            file.write(b"\x55\xaa\x55")


def swap_pages(segment: Path) -> None:
    """Records change places, trailers included; the headers stay."""
    shape = read_shape(segment)
    assert shape is not None
    with segment.open("r+b") as file:
        file.seek(shape.records_offset)
        records = [file.read(shape.record_bytes) for _ in range(30)]
        random.Random(0).shuffle(records)
        file.seek(shape.records_offset)
        file.write(b"".join(records))


def cut(segment: Path) -> None:
    os.truncate(segment, 1 << 20)


@pytest.mark.parametrize("damage", [spoil_pages, swap_pages, cut])
def test_damaged_pages_change_no_token(
    model: Path, folder: Path, cold: list[list[int]], damage: Callable[[Path], None]
) -> None:
    (segment,) = folder.glob("v1-*/*.seg")
    damage(segment)
    served = serve(model, folder)
    assert served.token_ids == cold
    assert damage is swap_pages or max(served.num_cached) == 0
    again = serve(model, folder)
    assert again.token_ids == cold


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_takes_nothing_changes_no_token(
    model: Path,
    tmp_path: Path,
    cold: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
    code: int,
) -> None:
    real = os.pwritev

    def failing(fd: int, buffers: list[memoryview], offset: int) -> int:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".seg"):
            raise OSError(code, os.strerror(code))
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "pwritev", failing)
    for _ in range(2):
        served = serve(model, tmp_path)
        assert served.token_ids == cold and max(served.num_cached) == 0


def test_an_engine_killed_while_saving_leaves_right_pages(
    model: Path, tmp_path: Path, cold: list[list[int]]
) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.offload import test_disk_serves as t;"
        "import pytest; t.make_patient(pytest.MonkeyPatch());"
        "t.PROMPTS = [f'{turn} {p}' if turn else p for turn in range(40) for p in t.PROMPTS];"
        "t.serve(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(model), str(tmp_path)], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    deadline_s = time.monotonic() + 60
    while not any(map(has_records, tmp_path.glob("v1-*/*.seg"))):
        assert process.poll() is None and time.monotonic() < deadline_s
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    served = serve(model, tmp_path)
    assert served.token_ids == cold
    assert min(serve(model, tmp_path).num_cached) >= 160


def has_records(segment: Path) -> bool:
    with segment.open("rb") as file:
        file.seek(4096 * 8)
        return bool(file.read(4096).strip(b"\0"))


def test_a_family_without_offload_refuses_it(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    with pytest.raises(UserFault, match="--kv-offload is not used by the model family echo"):
        LLM(tmp_path, kv_offload="host")


def test_an_unknown_tier_is_refused_before_anything_is_loaded(model: Path) -> None:
    with pytest.raises(PluginFault, match=r"'dsik'; offered: disk, shelf"):
        LLM(model, kv_offload="host,dsik")


def test_a_tier_of_a_plugin_serves(model: Path, cold: list[list[int]]) -> None:
    with LLM(model, kv_offload="host,shelf", kv_offload_host_gib=0.0625) as llm:
        answers = llm.generate(PROMPTS, PARAMS)
    assert [list(answer.token_ids) for answer in answers] == cold
