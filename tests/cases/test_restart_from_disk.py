"""Yesterday's prefixes: a restarted engine finds on disk what the last one saved there."""

from __future__ import annotations

from pathlib import Path

import pytest

from pegainfer_core.testing.conformance.session import Session
from pegainfer_core.testing.conformance.transcript import Transcript
from tests.cases.answers import assert_same, greedy
from tests.cases.conftest import StartEngine
from tests.cases.offloading import always_restored, tiers_with

__all__ = ["always_restored"]

B = 16
PARAMS = greedy(8, logprobs=1)
NUM_PROMPTS = 3

pytestmark = pytest.mark.usefixtures("always_restored")


def with_disk(start: StartEngine, model: Path, folder: Path, **options: object) -> Session:
    return start(
        model,
        kv_offload="host,disk",
        kv_offload_host_gib=0.01,
        kv_offload_disk_path=str(folder),
        kv_offload_disk_gib=1.0,
        **options,
    )


def prompts(session: Session) -> list[list[int]]:
    return [session.prompt(6 * B, seed=seed) for seed in range(NUM_PROMPTS)]


def answers(session: Session) -> list[Transcript]:
    return [session.generate(prompt, PARAMS) for prompt in prompts(session)]


def test_a_restarted_engine_finds_them(f3: Path, tmp_path: Path, start: StartEngine) -> None:
    expected = answers(start(f3, prefix_cache=False))
    first = with_disk(start, f3, tmp_path)
    for answer, right in zip(answers(first), expected, strict=True):
        assert_same(answer, right)
        assert answer.cached_tokens == 0
    first.handle.close()

    second = with_disk(start, f3, tmp_path)
    for answer, right in zip(answers(second), expected, strict=True):
        assert_same(answer, right)
        assert answer.cached_tokens == 5 * B
    host, disk = tiers_with(second, hit_tokens=NUM_PROMPTS * 5 * B)
    assert (disk.name, disk.num_corrupt) == ("disk", 0)
    assert disk.loaded_bytes > 0 and disk.load_s > 0
    assert host.hit_tokens == 0


def test_damaged_files_change_no_token(f3: Path, tmp_path: Path, start: StartEngine) -> None:
    """Every 3,000th byte of every file is another one."""
    expected = answers(start(f3, prefix_cache=False))
    first = with_disk(start, f3, tmp_path)
    answers(first)
    first.handle.close()
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.stat().st_size > 4096:
            content = bytearray(path.read_bytes())
            for place in range(5000, len(content), 3000):
                content[place] ^= 0x55
            path.write_bytes(bytes(content))

    second = with_disk(start, f3, tmp_path)
    for answer, right in zip(answers(second), expected, strict=True):
        assert_same(answer, right)
        assert answer.cached_tokens == 0


def test_another_checkpoint_finds_nothing(
    f3: Path, f3_bf16: Path, tmp_path: Path, start: StartEngine
) -> None:
    first = with_disk(start, f3, tmp_path)
    answers(first)
    first.handle.close()
    expected = answers(start(f3_bf16, prefix_cache=False))
    second = with_disk(start, f3_bf16, tmp_path)
    for answer, right in zip(answers(second), expected, strict=True):
        assert_same(answer, right)
        assert answer.cached_tokens == 0
