"""What is refused for good, what waits, and what a start reserves."""

from __future__ import annotations

import pytest

from pegainfer_core.contract import (
    ContextLength,
    EmptyPrompt,
    EngineCapabilities,
    GenerateRequest,
    InvalidParam,
    InvalidToken,
    KvBudget,
    RejectReason,
    SamplingParams,
    ServePlan,
    Unsupported,
)
from pegainfer_core.engine import Admission, RunningSet, Sequence, SlotPool, WaitingQueue
from pegainfer_core.kv import KvManager

B = 16


def admission(
    num_usable_pages: int = 100, capabilities: EngineCapabilities | None = None, **options: object
) -> tuple[Admission, KvManager]:
    kv = KvManager(num_usable_pages + 1, B)
    plan = ServePlan(
        max_model_len=1000,
        vocab_size=50,
        backend="numpy",
        page_tokens=B,
        num_pages=num_usable_pages + 1,
        max_num_seqs=4,
        max_prefill_tokens=64,
        capabilities=capabilities or EngineCapabilities(),
    )
    return Admission(plan, kv, **options), kv  # type: ignore[arg-type]


def request(prompt: list[int], max_tokens: int | None = 1, **fields: object) -> GenerateRequest:
    params = SamplingParams(max_tokens=max_tokens)
    return GenerateRequest(request_id=1, prompt_token_ids=prompt, params=params, **fields)  # type: ignore[arg-type]


NO_PRIORITY = EngineCapabilities(priority=False)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (request([]), EmptyPrompt()),
        (request([1, 50]), InvalidToken(token_id=50, vocab_size=50)),
        (request([-1, 1]), InvalidToken(token_id=-1, vocab_size=50)),
        (request([1], -1), InvalidParam(field="max_tokens", problem="must be at least 0, not -1")),
        (
            request([1] * 990, 11),
            ContextLength(prompt_tokens=990, max_tokens=11, limit_tokens=1000),
        ),
        (
            request([1] * 1000, None),
            ContextLength(prompt_tokens=1000, max_tokens=1, limit_tokens=1000),
        ),
        (request([1], priority=1), Unsupported(field="priority")),
        (request([1], lora="x"), Unsupported(field="lora")),
    ],
)
def test_refused_for_good(bad: GenerateRequest, reason: RejectReason) -> None:
    rules, kv = admission(capabilities=NO_PRIORITY)
    assert rules.accept(bad) == reason
    assert kv.pool.num_free == 100


@pytest.mark.parametrize(
    ("num_prompt", "max_tokens", "needed_pages"),
    [
        (160, 0, 10),
        (160, 1, 10),  # the last token is never an input
        (160, 2, 11),
        (1, 160, 10),
        (1, 161, 11),
        (161, None, 11),
    ],
)
def test_what_the_pool_can_never_hold(
    num_prompt: int, max_tokens: int | None, needed_pages: int
) -> None:
    rules, _ = admission(num_usable_pages=10)
    accepted = rules.accept(request([1] * num_prompt, max_tokens))
    if needed_pages <= 10:
        assert isinstance(accepted, Sequence)
    else:
        assert accepted == KvBudget(needed_pages=needed_pages, total_pages=10, page_tokens=B)
        assert "needs 11 KV pages of 16 tokens, but the pool has 10" in str(accepted)


@pytest.mark.parametrize(
    ("num_usable_pages", "num_prompt", "max_tokens"),
    [(100, 10, 990), (10, 10, 151), (10, 160, 1)],
)
def test_no_limit_means_context_or_pool(
    num_usable_pages: int, num_prompt: int, max_tokens: int
) -> None:
    rules, _ = admission(num_usable_pages)
    accepted = rules.accept(request([1] * num_prompt, None))
    assert isinstance(accepted, Sequence)
    assert accepted.max_tokens == max_tokens


def started(rules: Admission, prompt: list[int], max_tokens: int | None) -> tuple[Sequence, bool]:
    sequence = rules.accept(request(prompt, max_tokens))
    assert isinstance(sequence, Sequence)
    return sequence, rules.start(sequence)


def test_on_demand_wants_headroom_but_reserves_the_prompt_only() -> None:
    rules, kv = admission(40)  # 640 tokens
    first, ok = started(rules, [1] * 32, None)
    assert ok and first.num_reserved_pages == 2
    assert kv.num_available == 38
    _, ok = started(rules, [2] * 97, None)  # 7 pages and 512 tokens: 39 pages
    assert not ok
    _, ok = started(rules, [2] * 96, None)
    assert ok


def test_headroom_is_never_more_than_was_asked_for() -> None:
    rules, kv = admission(10)
    _, ok = started(rules, [1] * 150, 10)
    assert ok
    assert kv.num_available == 0


def test_worst_case_reserves_the_lifetime() -> None:
    rules, kv = admission(40, reserve="worst-case")
    first, ok = started(rules, [1] * 32, 320)
    assert ok and first.num_reserved_pages == 22
    assert kv.num_available == 18
    _, ok = started(rules, [1] * 32, 320)
    assert not ok


def test_a_preempted_sequence_needs_room_for_what_it_has() -> None:
    rules, kv = admission(10, headroom_tokens=16)
    sequence, ok = started(rules, [1] * 32, 100)
    assert ok
    kv.release(sequence)
    sequence.token_ids += [2] * 64
    assert rules.start(sequence)
    assert sequence.num_reserved_pages == 6


def waiting(rules: Admission, *lengths: int) -> WaitingQueue:
    queue = WaitingQueue(max_passes=2)
    for request_id, length in enumerate(lengths):
        params = SamplingParams(max_tokens=1)
        accepted = rules.accept(
            GenerateRequest(
                request_id=request_id, prompt_token_ids=[request_id] * length, params=params
            )
        )
        assert isinstance(accepted, Sequence)
        queue.push(accepted)
    return queue


def start_all(
    rules: Admission, queue: WaitingQueue, running: RunningSet, slots: SlotPool
) -> list[int]:
    started = rules.start_all(queue, running, slots)
    assert all(running.get(seq.request_id) is seq and seq.slot >= 0 for seq in started)
    return [seq.request_id for seq in started]


def test_all_that_fit_start_while_there_are_slots() -> None:
    rules, kv = admission(100)
    queue, running, slots = waiting(rules, 16, 16, 16), RunningSet(), SlotPool(2)
    assert start_all(rules, queue, running, slots) == [0, 1]
    assert start_all(rules, queue, running, slots) == []
    assert (len(queue), len(running), len(slots), kv.num_available) == (1, 2, 0, 98)


def test_small_ones_pass_a_large_one_but_not_for_ever() -> None:
    rules, kv = admission(10)
    queue, running, slots = waiting(rules, 96, 112, 16, 16, 16, 16), RunningSet(), SlotPool(9)
    assert start_all(rules, queue, running, slots) == [0, 2, 3]  # 1 needs 7 pages, 4 are left
    assert start_all(rules, queue, running, slots) == []  # 4 would fit but two have passed
    first = running.get(0)
    assert first is not None
    running.remove(first)
    kv.release(first)
    assert start_all(rules, queue, running, slots) == [1, 4]


def test_a_start_leaves_room_for_what_those_that_run_will_need() -> None:
    rules, kv = admission(64, headroom_tokens=64)
    running, slots = RunningSet(), SlotPool(9)
    queue = WaitingQueue()
    for number in range(9):
        params = SamplingParams(max_tokens=1000 if number % 2 else 17)
        accepted = rules.accept(
            GenerateRequest(request_id=number, prompt_token_ids=[number] * 128, params=params)
        )
        if isinstance(accepted, Sequence):
            queue.push(accepted)
    # 8 pages each; half the headroom of those that run: 2 pages, or 1 for those that end soon.
    assert [request_id % 2 for request_id in start_all(rules, queue, running, slots)] == [
        0,
        0,
        0,
        0,
        0,
    ]
    assert kv.num_available == 64 - 5 * 8


def test_forms_that_the_plan_promises_need_grammars() -> None:
    with pytest.raises(ValueError, match="structured, but grammars is None: give what open_gramm"):
        admission(capabilities=EngineCapabilities(structured=True))
