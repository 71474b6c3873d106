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
