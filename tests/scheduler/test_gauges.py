"""Metrics that a scheduler's parts report: who waits for what, and what became of the cache."""

from __future__ import annotations

import time

import pytest

from pegainfer_core.contract import GenerateRequest, SamplingParams, ServePlan
from pegainfer_core.engine import (
    Admission,
    Ledger,
    NoOffload,
    Roster,
    Sequence,
    take_metrics,
)
from pegainfer_core.kv import KvManager, SnapshotSpec
from tests.scheduler.harness import PAGE_TOKENS, Harness
from tests.scheduler.paged_model import PagedModel


def long(num_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=num_tokens, ignore_eos=True)


def test_who_waits_for_a_slot() -> None:
    harness = Harness(max_num_seqs=2)
    for _ in range(5):
        harness.submit([1, 2, 3], params=long(6))
    harness.step()
    now = harness.metrics
    assert (now.num_running, now.num_waiting) == (2, 3)
    assert (now.num_waiting_slots, now.num_waiting_kv) == (3, 0)
    harness.drain()
    now = harness.metrics
    assert now.num_waiting == now.num_waiting_slots == now.num_waiting_kv == 0


def test_who_waits_for_pages() -> None:
    harness = Harness(num_usable_pages=6, max_num_seqs=4)
    prompts = [[start, *range(20, 20 + 3 * PAGE_TOKENS)] for start in range(3)]
    for prompt in prompts:
        harness.submit(prompt, params=long(6))
    harness.step()
    now = harness.metrics
    assert (now.num_running, now.num_waiting) == (1, 2)
    assert (now.num_waiting_slots, now.num_waiting_kv) == (0, 2)
    harness.drain()


def test_a_preempted_request_waits_for_pages_and_is_counted() -> None:
    harness = Harness(num_usable_pages=5, max_num_seqs=4, headroom_tokens=1)
    for start in range(2):
        harness.submit([start, 30, 31, 32], params=long(12))
    while not harness.metrics.num_preemptions:
        assert harness.scheduler.has_work()
        harness.step()
    now = harness.metrics
    assert (now.num_preemptions, now.num_waiting_kv, now.num_waiting_slots) == (1, 1, 0)
    harness.drain()


def test_queue_time_is_the_wait_for_the_first_start() -> None:
    ledger = Ledger()
    arrival_s = time.monotonic() - 2.5
    for request_id, arrived in ((1, arrival_s), (2, arrival_s + 1.0), (3, time.monotonic() + 9)):
        request = GenerateRequest(
            request_id=request_id,
            prompt_token_ids=[1],
            params=SamplingParams(),
            arrival_s=arrived,
        )
        ledger.open(request)
        ledger.schedule(request_id, 0)
    # A clock that is ahead makes no time negative.
    assert ledger.num_scheduled == 3
    assert ledger.queue_s == pytest.approx(4.0, abs=0.5)


def test_snapshots_of_all_groups_together() -> None:
    plan = ServePlan(
        max_model_len=64,
        vocab_size=10,
        backend="numpy",
        page_tokens=PAGE_TOKENS,
        num_pages=20,
        max_num_seqs=2,
        max_prefill_tokens=8,
    )
    specs = (SnapshotSpec(1, PAGE_TOKENS), SnapshotSpec(2, PAGE_TOKENS))
    kv = KvManager(20, PAGE_TOKENS, snapshots=specs)
    admission = Admission(plan, kv)
    for start in range(3):
        request = GenerateRequest(
            request_id=start,
            prompt_token_ids=[start] * (PAGE_TOKENS + 1),
            params=SamplingParams(max_tokens=2),
        )
        seq = admission.accept(request)
        assert isinstance(seq, Sequence) and admission.start(seq)
        assert kv.grow(seq, PAGE_TOKENS) and kv.snapshots.take(seq, PAGE_TOKENS)
        assert not kv.snapshots.take(seq, PAGE_TOKENS)
        seq.num_computed = seq.num_completed = PAGE_TOKENS
        kv.commit([seq])
        kv.release(seq)
    offload = NoOffload(kv)
    requests = Roster(4, offload, PagedModel(PAGE_TOKENS, 8, 8))
    now = take_metrics(requests, kv, admission, offload)
    assert (now.kv_total_snapshots, now.kv_held_snapshots) == (3, 3)
    assert (now.num_evicted_snapshots, now.num_skipped_snapshots) == (3, 3)
    assert now.num_dropped_event_batches == 0
