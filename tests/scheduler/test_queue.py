"""Who is next: priority, arrival, and nobody for ever last."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegainfer_core.contract import GenerateRequest
from pegainfer_core.engine import Sequence, WaitingQueue


def sequence(request_id: int, priority: int = 0) -> Sequence:
    request = GenerateRequest(request_id=request_id, prompt_token_ids=[1], priority=priority)
    return Sequence(request, max_tokens=1)


def drain(queue: WaitingQueue) -> list[int]:
    return [queue.pop().request_id for _ in range(len(queue))]


def test_first_come_first_served() -> None:
    queue = WaitingQueue()
    for request_id in (5, 3, 9):
        queue.push(sequence(request_id))
    assert drain(queue) == [5, 3, 9]


def test_lower_priority_numbers_go_first() -> None:
    queue = WaitingQueue()
    for request_id, priority in [(1, 0), (2, 3), (3, -1), (4, 0), (5, -1)]:
        queue.push(sequence(request_id, priority))
    assert drain(queue) == [3, 5, 1, 4, 2]


def test_a_preempted_sequence_returns_to_the_head_of_its_priority() -> None:
    queue = WaitingQueue()
    for request_id in (1, 2, 3):
        queue.push(sequence(request_id))
    first = queue.pop()
    queue.push(sequence(4, priority=-1))
    queue.push(first)
    assert drain(queue) == [4, 1, 2, 3]
    assert first.serial == 0


def test_removal_from_anywhere() -> None:
    queue = WaitingQueue()
    for request_id in range(5):
        queue.push(sequence(request_id))
    removed = queue.remove(2)
    assert removed is not None and removed.request_id == 2
    assert queue.remove(2) is None
    assert queue.remove(99) is None
    assert queue.remove(0) is not None
    assert drain(queue) == [1, 3, 4]


def test_an_empty_queue_has_no_next() -> None:
    queue = WaitingQueue()
    assert queue.peek() is None
    with pytest.raises(IndexError, match="empty"):
        queue.pop()


def test_a_stream_of_better_priority_passes_only_so_often() -> None:
    queue = WaitingQueue(max_overtakes=10)
    queue.push(sequence(0, priority=9))
    served = []
    for request_id in range(1, 30):
        queue.push(sequence(request_id))
        served.append(queue.pop().request_id)
    assert served.index(0) == 10
    assert served[:10] + served[11:] == list(range(1, 29))


def test_the_count_of_overtakes_starts_anew_when_the_oldest_leaves() -> None:
    queue = WaitingQueue(max_overtakes=2)
    queue.push(sequence(0, priority=9))
    queue.push(sequence(1, priority=8))
    for request_id in (2, 3, 4, 5):
        queue.push(sequence(request_id))
    assert [queue.pop().request_id for _ in range(2)] == [2, 3]
    queue.remove(0)
    assert drain(queue) == [4, 5, 1]


def offers(queue: WaitingQueue, *taken: int) -> list[int]:
    """Ids offered in one round, in which those of `taken` start."""
    seen = []
    for candidate in queue.candidates():
        seen.append(candidate.request_id)
        if candidate.request_id in taken:
            queue.take(candidate)
    return seen


def waiting(*priorities: int, **options: int) -> WaitingQueue:
    queue = WaitingQueue(**options)
    for request_id, priority in enumerate(priorities):
        queue.push(sequence(request_id, priority))
    return queue


def test_all_are_offered_in_order_while_all_start() -> None:
    queue = waiting(0, 3, -1, 0)
    assert offers(queue, 0, 1, 2, 3) == [2, 0, 3, 1]
    assert offers(queue) == []


def test_some_of_the_same_priority_may_pass_one_that_does_not_fit() -> None:
    queue = waiting(0, 0, 0, 0, 0, 0, 0)
    assert offers(queue, 2, 4) == [0, 1, 2, 3, 4]
    assert offers(queue) == [0, 1, 3, 5, 6]
    assert offers(waiting(0, 1, 0, -1), 3) == [3, 0, 2]  # never one of worse priority


def test_only_so_many_pass() -> None:
    queue = waiting(*[0] * 20, max_passes=5)
    passed = 0
    for _ in range(6):
        before = len(queue)
        offers(queue, *range(1, 20))
        passed += before - len(queue)
    assert passed == 5
    assert offers(queue) == [0]
    assert offers(queue, 0)[0] == 0  # it fits at last
    assert offers(queue, *range(20)) == list(range(6, 20))


def test_nobody_passes_the_preempted_and_the_overdue() -> None:
    queue = waiting(0, 0)
    head = queue.peek()
    assert head is not None
    head.num_preemptions = 1
    assert offers(queue) == [0]
    queue = waiting(9, 0, 0, 0, 9, 9, max_overtakes=2)
    assert offers(queue, 1, 2) == [1, 2, 0]
    assert offers(queue) == [0]


def test_one_that_leaves_takes_its_passes_with_it() -> None:
    queue = waiting(0, 0, 0, 0, max_passes=1)
    assert offers(queue, 1) == [0, 1]
    assert offers(queue, 2) == [0]
    queue.remove(0)
    assert offers(queue, 3) == [2, 3]


@given(st.lists(st.tuples(st.sampled_from("push pop remove".split()), st.integers(-2, 2))))
def test_order_equals_a_plain_sort(actions: list[tuple[str, int]]) -> None:
    queue, model = WaitingQueue(max_overtakes=10**9), []
    for serial, (action, value) in enumerate(actions):
        if action == "push":
            queue.push(sequence(serial, value))
            model.append((value, serial))
        elif action == "pop" and model:
            assert queue.pop().request_id == min(model)[1]
            model.remove(min(model))
        elif action == "remove" and model:
            victim = model.pop(value % len(model))
            removed = queue.remove(victim[1])
            assert removed is not None and removed.request_id == victim[1]
        assert len(queue) == len(model)
