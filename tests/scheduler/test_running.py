"""Order of importance, and room made by preempting the least important."""

from __future__ import annotations

import pytest

from pegainfer_core.contract import GenerateRequest
from pegainfer_core.engine import RunningSet, Sequence, make_room
from pegainfer_core.kv import KvManager


def running_set(kv: KvManager, *ranks: tuple[int, int]) -> tuple[RunningSet, dict[int, Sequence]]:
    """Sequences of one page each; ids are serials."""
    running, by_serial = RunningSet(), {}
    for priority, serial in ranks:
        request = GenerateRequest(request_id=serial, prompt_token_ids=[1], priority=priority)
        sequence = Sequence(request, max_tokens=100, serial=serial, chain=kv.new_chain())
        assert kv.admit(sequence, reserve_tokens=1, room_tokens=1)
        assert kv.grow(sequence, 1)
        running.add(sequence)
        by_serial[serial] = sequence
    return running, by_serial


def test_order_is_priority_then_arrival() -> None:
    running, by_serial = running_set(KvManager(10, 4), (0, 2), (1, 0), (0, 1), (-1, 3))
    assert [sequence.serial for sequence in running] == [3, 1, 2, 0]
    assert running.victim() is by_serial[0]
    running.remove(by_serial[1])
    assert [sequence.serial for sequence in running] == [3, 2, 0]
    assert running.get(1) is None
    assert running.get(2) is by_serial[2]
    assert len(running) == 3


def preempting(kv: KvManager, running: RunningSet, gone: list[int]):  # type: ignore[no-untyped-def]
    def preempt(sequence: Sequence) -> None:
        kv.release(sequence)
        running.remove(sequence)
        gone.append(sequence.serial)

    return preempt


def test_room_is_made_by_the_youngest_of_the_lowest_priority() -> None:
    kv = KvManager(5, 4)
    running, by_serial = running_set(kv, (0, 0), (1, 1), (0, 2), (1, 3))
    gone: list[int] = []
    assert make_room(by_serial[0], 12, kv, running, preempting(kv, running, gone))
    assert gone == [3, 1]
    assert len(by_serial[0].page_ids) == 3


def test_nobody_goes_when_there_is_room() -> None:
    kv = KvManager(9, 4)
    running, by_serial = running_set(kv, (0, 0), (0, 1))
    gone: list[int] = []
    assert make_room(by_serial[0], 12, kv, running, preempting(kv, running, gone))
    assert gone == []


def test_the_least_important_goes_itself() -> None:
    kv = KvManager(3, 4)
    running, by_serial = running_set(kv, (0, 0), (0, 1))
    gone: list[int] = []
    assert not make_room(by_serial[1], 5, kv, running, preempting(kv, running, gone))
    assert gone == [1]


def test_a_lone_request_that_does_not_fit_is_a_bug() -> None:
    kv = KvManager(3, 4)
    running, by_serial = running_set(kv, (0, 0))
    with pytest.raises(RuntimeError, match=r"request 0 needs 3 KV pages alone, more than .* 2"):
        make_room(by_serial[0], 9, kv, running, preempting(kv, running, []))
