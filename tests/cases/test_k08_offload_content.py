"""K08: pages that went to the host and came back hold what they held.

Seen elsewhere: a copy reads blocks that are still written, or a block is given to others while it
is copied, and a later hit gives garbled text without any error.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pegainfer_core.contract import FinishReason
from pegainfer_core.testing.conformance.session import Session
from pegainfer_core.testing.conformance.transcript import Transcript
from tests.cases.answers import assert_same, greedy
from tests.cases.conftest import StartEngine
from tests.cases.offloading import always_restored, late_copies, offload_threads

__all__ = ["always_restored", "late_copies"]

B = 16
NUM_PROMPTS, ROUNDS, AT_A_TIME = 10, 20, 4
PARAMS = greedy(6, logprobs=1)
PROMPT_PAGES = 5
SLOT_BYTES = 8192
"""A record of the tiny model: 4 KiB of page, and the trailer rounded up to the alignment."""

pytestmark = pytest.mark.usefixtures("always_restored", "late_copies")


def engines(
    start: StartEngine, f3: Path, host_prompts: int
) -> tuple[Session, list[list[int]], list[Transcript]]:
    """An engine for two prompts with a host tier, the prompts, and their cold answers."""
    plain = start(f3, prefix_cache=False)
    prompts = [plain.prompt(4 * B, seed=seed) for seed in range(NUM_PROMPTS)]
    expected = [plain.generate(prompt, PARAMS) for prompt in prompts]
    session = start(
        f3,
        num_kv_pages=2 * PROMPT_PAGES,
        kv_offload="host",
        kv_offload_host_gib=host_prompts * PROMPT_PAGES * SLOT_BYTES / 2**30,
        max_num_seqs=AT_A_TIME,
        max_prefill_tokens=48,
        max_model_len=8 * B,
    )
    return session, prompts, expected


def settled(session: Session, num_aborts: int = 0) -> None:
    metrics = session.settle()
    assert (metrics.kv_used_pages, metrics.num_running, metrics.num_waiting) == (0, 0, 0)
    assert metrics.kv_offload.num_restore_failures == 0
    assert metrics.kv_offload.num_held_pages == metrics.kv_offload.num_restoring == 0
    assert metrics.num_failed == 0 and metrics.num_aborted == num_aborts


@pytest.mark.parametrize("host_prompts", [20, 4])
def test_ten_prompts_in_rotation(host_prompts: int, f3: Path, start: StartEngine) -> None:
    """A pool for two prompts, four at a time, twenty rounds; a small host tier evicts, too."""
    session, prompts, expected = engines(start, f3, host_prompts)
    cached = []
    rotation = [index for _ in range(ROUNDS) for index in range(NUM_PROMPTS)]
    for first in range(0, len(rotation), AT_A_TIME):
        group = rotation[first : first + AT_A_TIME]
        live = [(index, session.submit(prompts[index], PARAMS)) for index in group]
        for index, request_id in live:
            answer = session.answer(request_id)
            assert_same(answer, expected[index])
            cached.append(answer.cached_tokens)
    settled(session)
    offload = session.handle.metrics().kv_offload
    assert set(cached) <= {0, B, 2 * B, 3 * B}
    if host_prompts == 20:
        assert sum(tokens == 3 * B for tokens in cached) > len(cached) // 2, cached
        assert offload.num_restores > len(cached) // 2
        assert offload.tiers[0].num_evicted == 0
    else:
        assert offload.tiers[0].num_evicted > 100


def test_aborts_during_restores(f3: Path, start: StartEngine) -> None:
    session, prompts, expected = engines(start, f3, host_prompts=20)
    rng = random.Random(0)
    num_aborts = 0
    for _ in range(ROUNDS):
        live = [
            (index, session.submit(prompts[index], PARAMS)) for index in rng.sample(range(10), 4)
        ]
        for index, request_id in live:
            if rng.random() < 0.4:
                answer = session.abort(request_id)
                num_aborts += answer.finished.reason is FinishReason.ABORT
                right = expected[index].token_ids
                assert answer.token_ids == right[: len(answer.token_ids)]
            else:
                assert_same(session.answer(request_id), expected[index])
    settled(session, num_aborts)
    assert num_aborts > 5
    assert session.handle.metrics().kv_offload.num_restores > 5


def test_closing_ends_all_threads(f3: Path, start: StartEngine) -> None:
    session, prompts, _ = engines(start, f3, host_prompts=20)
    for prompt in prompts:
        session.submit(prompt, PARAMS)
    session.handle.close()
    assert offload_threads() == []
