"""The host pool: found by key, pinned while used, given up leaf first."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegainfer_core.backend import HostSlab
from pegainfer_core.kv import PageKey
from pegainfer_core.offload import HostPool, HostSlot

SIZE = 4096


def key(name: str) -> PageKey:
    return PageKey(hashlib.sha256(name.encode()).digest())


def pool_of(num_slots: int) -> HostPool:
    pool = HostPool(SIZE)
    pool.add(HostSlab(1 << 20, memoryview(bytearray(num_slots * SIZE + 100))))
    return pool


def put(pool: HostPool, name: str, parent: str | None = None) -> HostSlot | None:
    slot = pool.reserve(key(name))
    if slot is not None:
        pool.publish(slot, key(parent) if parent else None)
        pool.unpin([slot])
    return slot


def held(pool: HostPool, names: str) -> str:
    return "".join(name for name in names if pool.holds(key(name)))


def test_slots_do_not_overlap() -> None:
    pool = pool_of(4)
    slots = [pool.reserve(key(name)) for name in "abcd"]
    assert [slot.address - (1 << 20) for slot in slots if slot] == [0, SIZE, 2 * SIZE, 3 * SIZE]
    assert all(slot is not None and slot.buffer.nbytes == SIZE for slot in slots)
    assert pool.reserve(key("e")) is None, "all are pinned"
    assert pool.num_pinned == pool.num_slots == 4


def test_a_lease_ends_at_the_first_gap() -> None:
    pool = pool_of(4)
    for name in "abd":
        put(pool, name)
    assert [slot.key for slot in pool.lease(map(key, "abcd"))] == [key("a"), key("b")]
    found = pool.lease_held([key(name) for name in "acd"])
    assert [slot is not None for slot in found] == [True, False, True]


def test_least_recently_used_goes_first() -> None:
    pool = pool_of(3)
    for name in "abc":
        put(pool, name)
    pool.unpin(pool.lease([key("a")]))
    put(pool, "d")
    assert (held(pool, "abcd"), pool.num_evicted) == ("acd", 1)


def test_the_beginning_of_a_prefix_stays_longest() -> None:
    pool = pool_of(4)
    for name, parent in ("a", None), ("b", "a"), ("c", "b"), ("d", "c"):
        put(pool, name, parent)
    for names in ("x", "abcx"), ("y", "abxy"):
        put(pool, names[0])
        assert held(pool, "abcdxy") == names[1]


def test_a_branch_keeps_its_stem() -> None:
    pool = pool_of(4)
    for name, parent in ("a", None), ("b", "a"), ("c", "a"), ("d", None):
        put(pool, name, parent)
    put(pool, "x")
    put(pool, "y")
    assert held(pool, "abcdxy") == "adxy", "b and c before a"


def test_an_old_prefix_goes_as_a_whole() -> None:
    """Its beginning is no younger than its end, so that others do not lose theirs for it."""
    pool = pool_of(6)
    for chain in "abc", "xyz":
        slots = []
        for name in chain:
            slot = pool.reserve(key(name))
            assert slot is not None
            slots.append(slot)
        for slot, parent in zip(slots, [None, *slots], strict=False):
            pool.publish(slot, parent.key if parent else None)
        pool.unpin(slots)
    for name, left in ("1", "abxyz"), ("2", "axyz"), ("3", "xyz"):
        put(pool, name)
        assert held(pool, "abcxyz") == left


def test_touched_is_used() -> None:
    pool = pool_of(4)
    for name, parent in ("a", None), ("b", "a"), ("c", None), ("d", None):
        put(pool, name, parent)
    pool.touch(key("b"))
    pool.touch(key("a"))
    pool.touch(key("unknown"))
    put(pool, "x")
    put(pool, "y")
    assert held(pool, "abcdxy") == "abxy"


def test_what_is_pinned_stays() -> None:
    pool = pool_of(2)
    put(pool, "a")
    leased = pool.lease([key("a")])
    for name in "bcd":
        put(pool, name)
    assert held(pool, "abcd") == "ad"
    pool.pin(leased)
    pool.unpin(leased)
    put(pool, "e")
    assert pool.holds(key("a"))
    pool.unpin(leased)
    put(pool, "f")
    put(pool, "g")
    assert held(pool, "aefg") == "fg"


def test_reserved_content_is_found_only_once_published() -> None:
    pool = pool_of(2)
    slot = pool.reserve(key("a"))
    assert slot is not None and not pool.holds(key("a"))
    pool.unpin([slot])
    assert len(pool) == 0 and pool.num_pinned == 0
    assert put(pool, "a") is not None
    assert pool.reserve(key("a")) is None, "held already"


def test_the_same_content_twice() -> None:
    """Two copies under way at once: the second one is given up."""
    pool = pool_of(3)
    first, second = pool.reserve(key("a")), pool.reserve(key("a"))
    assert first is not None and second is not None
    for slot in (first, second):
        pool.publish(slot, None)
    assert (first.published, second.published) == (True, False)
    pool.unpin([first, second])
    assert (len(pool), pool.num_pinned) == (1, 0)
    assert pool.lease([key("a")]) == [first]


def test_clear_forgets_what_is_under_way_too() -> None:
    pool = pool_of(4)
    put(pool, "a")
    put(pool, "b", "a")
    leased = pool.lease([key("a")])
    coming = pool.reserve(key("c"))
    assert coming is not None
    pool.clear()
    assert held(pool, "abc") == ""
    pool.publish(coming, None)
    assert held(pool, "abc") == ""
    pool.unpin([*leased, coming])
    assert pool.num_pinned == 0
    for name in "wxyz":
        put(pool, name)
    assert held(pool, "wxyz") == "wxyz"


def test_slots_are_whole_records() -> None:
    with pytest.raises(ValueError, match="multiple of 4096"):
        HostPool(5000)


@given(
    st.integers(1, 5),
    st.lists(
        st.tuples(
            st.sampled_from(["put", "lease", "unpin", "reserve", "publish", "clear"]),
            st.integers(0, 9),
        ),
        max_size=60,
    ),
)
def test_any_history(num_slots: int, history: list[tuple[str, int]]) -> None:
    """Keys form two chains; no slot is lost, and what is pinned keeps its key."""
    pool = pool_of(num_slots)
    pinned: list[tuple[HostSlot, int]] = []

    def parent(number: int) -> PageKey | None:
        return key(str(number - 2)) if number >= 2 else None

    for what, number in history:
        name = key(str(number))
        if what in ("put", "reserve"):
            slot = pool.reserve(name)
            if slot is not None and what == "put":
                pool.publish(slot, parent(number))
                pool.unpin([slot])
            elif slot is not None:
                pinned.append((slot, number))
        elif what == "lease":
            pinned += [(slot, number) for slot in pool.lease([name])]
        elif what == "clear":
            pool.clear()
        elif pinned:
            slot, own = pinned.pop(number % len(pinned))
            if what == "publish":
                pool.publish(slot, parent(own))
            pool.unpin([slot])
        assert all(slot.key == key(str(own)) for slot, own in pinned)
        assert pool.num_pinned == len({id(slot) for slot, _ in pinned})
        assert len(pool) + len({id(s) for s, _ in pinned if not s.published}) <= num_slots
    for slot, _ in pinned:
        pool.unpin([slot])
    assert pool.num_pinned == 0
    for number in range(20, 20 + num_slots):
        assert put(pool, str(number)) is not None
    assert len(pool) == num_slots
