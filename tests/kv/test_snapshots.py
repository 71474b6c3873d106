"""Snapshots of state at block borders: a prefix is taken over only where every group has one."""

from __future__ import annotations

import pytest

from pegainfer_core.kv import (
    Block,
    BlockHasher,
    KvManager,
    PageError,
    PrefixIdentity,
    SnapshotPool,
    SnapshotSpec,
)
from tests.kv.test_manager import B, Seq, admit, compute

EVERY = 2 * B
SPECS = (SnapshotSpec(num_slots=4, every_tokens=EVERY), SnapshotSpec(3, EVERY))
PROMPT = list(range(100, 100 + 6 * B))


def manager(**options: object) -> KvManager:
    return KvManager(51, B, snapshots=SPECS, **options)  # type: ignore[arg-type]


def counts(pool: SnapshotPool) -> tuple[int, int, int, int]:
    assert pool.num_free + pool.num_taken + pool.num_held == pool.num_total
    return pool.num_free, pool.num_taken, pool.num_held, pool.num_pinned


def run(kv: KvManager, seq: Seq, num_tokens: int) -> list[tuple[int, ...]]:
    """Compute up to so many tokens, ending a step at every border; returns the slots written."""
    written = []
    kv.snapshots.restored(seq)
    while seq.num_computed < num_tokens:
        border = seq.num_computed // EVERY * EVERY + EVERY
        stop = min(border, num_tokens)
        if stop == border:
            written.append(kv.snapshots.take(seq, stop))
        compute(kv, seq, stop)
    return written


def test_a_hit_ends_where_every_group_has_a_snapshot() -> None:
    kv = manager()
    first = admit(kv, PROMPT)
    written = run(kv, first, 4 * B)
    compute(kv, first, 6 * B)  # no snapshot behind the last two blocks
    kv.release(first)
    second = admit(kv, [*PROMPT, 1])
    assert (second.num_computed, len(second.page_ids)) == (4 * B, 4)
    assert kv.snapshots.sources(second) == written[-1]
    assert [counts(pool) for pool in kv.snapshots.pools] == [(2, 0, 2, 1), (1, 0, 2, 1)]
    kv.snapshots.restored(second)
    assert kv.snapshots.sources(second) == ()
    assert [pool.num_pinned for pool in kv.snapshots.pools] == [0, 0]
    compute(kv, second)
    kv.release(second)
    assert kv.pool.num_cached == 6  # what was computed twice is kept once


def test_nothing_is_taken_over_without_a_snapshot() -> None:
    kv = manager()
    first = admit(kv, PROMPT)
    compute(kv, first)
    kv.release(first)
    second = admit(kv, PROMPT)
    assert (second.num_computed, kv.snapshots.sources(second)) == (0, ())


def test_the_smallest_group_decides_and_gives_up_its_oldest() -> None:
    kv = manager()
    prompts = [[start, *PROMPT[1:EVERY], 7] for start in range(4)]
    for prompt in prompts:
        seq = admit(kv, prompt)
        run(kv, seq, len(prompt))
        kv.release(seq)
    assert [pool.num_evicted for pool in kv.snapshots.pools] == [0, 1]
    hits = []
    for prompt in prompts:
        seq = admit(kv, prompt)
        hits.append(seq.num_computed)
        kv.release(seq)  # before it was restored: unpinned all the same
    assert hits == [0, EVERY, EVERY, EVERY]
    assert [pool.num_pinned for pool in kv.snapshots.pools] == [0, 0]


def test_a_use_makes_a_snapshot_young_again() -> None:
    kv = manager()
    prompts = [[start, *PROMPT[1:EVERY], 7] for start in range(4)]
    for prompt in (*prompts[:3], prompts[0], prompts[3]):
        seq = admit(kv, prompt)
        run(kv, seq, len(prompt))
        kv.release(seq)
    seq = admit(kv, prompts[0])
    assert seq.num_computed == EVERY
    assert admit(kv, prompts[1]).num_computed == 0


def test_without_room_nothing_is_taken_in_any_group() -> None:
    kv = manager()
    seqs = [admit(kv, [start, *PROMPT]) for start in range(4)]
    slots = [kv.snapshots.take(seq, EVERY) for seq in seqs]
    assert slots[3] == () and all(len(taken) == 2 for taken in slots[:3])
    assert [counts(pool)[:2] for pool in kv.snapshots.pools] == [(1, 3), (0, 3)]
    assert kv.snapshots.pools[1].num_skipped == 1
    for seq in seqs:
        kv.release(seq)
    assert [counts(pool) for pool in kv.snapshots.pools] == [(4, 0, 0, 0), (3, 0, 0, 0)]


def test_a_pinned_snapshot_is_never_written_over() -> None:
    kv = manager()
    first = admit(kv, PROMPT)
    [taken] = run(kv, first, EVERY)
    kv.release(first)
    reader = admit(kv, PROMPT)
    assert kv.snapshots.sources(reader) == taken
    others = [admit(kv, [start, *PROMPT]) for start in range(3)]
    written = [kv.snapshots.take(seq, EVERY) for seq in others]
    assert written[2] == ()
    assert all(taken[1] != slots[1] for slots in written[:2])


def test_a_snapshot_is_known_only_when_its_step_has_completed() -> None:
    kv = manager()
    seq = admit(kv, PROMPT)
    kv.grow(seq, EVERY)
    assert kv.snapshots.take(seq, EVERY)
    seq.num_computed = EVERY  # launched, not completed
    kv.commit([seq])
    assert admit(kv, PROMPT).num_computed == 0
    seq.num_completed = EVERY
    kv.commit([seq])
    assert admit(kv, PROMPT).num_computed == EVERY


def test_equal_sequences_side_by_side_leave_one_snapshot() -> None:
    kv = manager()
    twins = [admit(kv, PROMPT) for _ in range(2)]
    for twin in twins:
        run(kv, twin, EVERY)
    assert [pool.num_held for pool in kv.snapshots.pools] == [1, 1]


def test_a_snapshot_goes_with_its_block() -> None:
    kv = KvManager(7, B, snapshots=SPECS)
    seq = admit(kv, PROMPT[: 4 * B])
    run(kv, seq, 4 * B)
    kv.release(seq)
    assert [pool.num_held for pool in kv.snapshots.pools] == [2, 2]
    other = admit(kv, list(range(4 * B)))
    compute(kv, other)  # takes two free pages and the last two blocks
    assert [pool.num_held for pool in kv.snapshots.pools] == [1, 1]
    kv.release(other)
    kv.reset_prefix_cache()
    assert [counts(pool) for pool in kv.snapshots.pools] == [(4, 0, 0, 0), (3, 0, 0, 0)]


def test_a_block_nobody_can_find_gets_no_snapshot() -> None:
    kv = manager(hasher=BlockHasher(lambda data: b"same"))
    first = admit(kv, PROMPT)
    run(kv, first, EVERY)  # its second block has the first one's hash
    assert [pool.num_held for pool in kv.snapshots.pools] == [0, 0]
    assert [pool.num_free for pool in kv.snapshots.pools] == [4, 3]
    assert kv.snapshots.take(first, 2 * EVERY) == ()


def test_borders() -> None:
    kv = manager()
    assert [kv.snapshots.border(0, stop) for stop in (1, EVERY - 1, EVERY, 3 * EVERY + 1)] == [
        0,
        0,
        EVERY,
        3 * EVERY,
    ]
    assert kv.snapshots.border(EVERY, 2 * EVERY - 1) == 0
    seq = admit(kv, PROMPT)
    for num_tokens in (0, B, EVERY + 1):
        with pytest.raises(PageError, match="border"):
            kv.snapshots.take(seq, num_tokens)


def test_without_groups_or_cache_there_is_nothing_to_do() -> None:
    for kv in (KvManager(20, B), KvManager(20, B, prefix_cache=False, snapshots=SPECS)):
        seq = admit(kv, PROMPT)
        assert kv.snapshots.pools == ()
        assert kv.snapshots.border(0, EVERY) == 0
        assert kv.snapshots.take(seq, EVERY) == kv.snapshots.sources(seq) == ()
        kv.snapshots.restored(seq)


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        ((SnapshotSpec(1, B + 1),), "multiple of the page's 4"),
        ((SnapshotSpec(1, 0),), "multiple"),
        ((SnapshotSpec(1, B), SnapshotSpec(1, 2 * B)), r"one common distance, not \[4, 8\]"),
    ],
)
def test_wrong_borders_are_refused(specs: tuple[SnapshotSpec, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        KvManager(20, B, snapshots=specs)


def test_pool_refuses_unbalanced_pins_and_keeps_what_is_read() -> None:
    pool = SnapshotPool(1)
    block = Block(b"h", PrefixIdentity(), b"", 1)
    with pytest.raises(PageError, match="not held"):
        pool.pin(block)
    slot = pool.take()
    assert slot == 0 and pool.take() is None
    pool.attach(slot, block, 4)
    assert pool.pin(block) == pool.pin(block) == 0
    pool.forget(block)
    pool.unpin(block)
    assert (pool.take(), counts(pool)) == (None, (0, 0, 1, 1))
    pool.unpin(block)
    assert counts(pool) == (1, 0, 0, 0)
    with pytest.raises(PageError, match="too often"):
        pool.unpin(block)


def test_of_passing_snapshots_only_the_newest_is_kept() -> None:
    kv = manager()
    seq = admit(kv, PROMPT)
    for border in (EVERY, 2 * EVERY, 3 * EVERY):
        passing = border > EVERY
        assert kv.snapshots.take(seq, border, passing=passing)
        compute(kv, seq, border)
    assert [pool.num_held for pool in kv.snapshots.pools] == [2, 2]
    kv.release(seq)
    hits = [admit(kv, [*PROMPT[: n * B], 1]).num_computed for n in (6, 5, 3)]
    assert hits == [3 * EVERY, EVERY, EVERY]


def test_passing_by_another_s_snapshot_leaves_it_there() -> None:
    kv = manager()
    first = admit(kv, PROMPT)
    run(kv, first, 2 * EVERY)
    second = admit(kv, [*PROMPT[: 2 * EVERY], 7, 7, 7, 7, 7, 7, 7, 7])
    assert second.num_computed == 2 * EVERY
    third = admit(kv, [*PROMPT[:EVERY], *second.token_ids[EVERY:]])
    kv.release(third)
    kv.snapshots.restored(second)
    kv.release(second)
    late = admit(kv, PROMPT[: EVERY + 1])
    kv.snapshots.restored(late)
    late.token_ids += PROMPT[EVERY + 1 :]
    for border in (2 * EVERY, 3 * EVERY):
        assert kv.snapshots.take(late, border, passing=True)
        compute(kv, late, border)
    kv.release(late)
    kv.release(first)
    assert admit(kv, PROMPT[: 2 * EVERY + 1]).num_computed == 2 * EVERY


def test_a_pinned_passing_snapshot_is_freed_behind_its_reader() -> None:
    kv = manager()
    seq = admit(kv, PROMPT)
    assert kv.snapshots.take(seq, EVERY, passing=True)
    compute(kv, seq, EVERY)
    reader = admit(kv, PROMPT)
    assert kv.snapshots.sources(reader)
    assert kv.snapshots.take(seq, 2 * EVERY, passing=True)
    compute(kv, seq, 2 * EVERY)
    assert [counts(pool)[0] for pool in kv.snapshots.pools] == [2, 1]
    kv.snapshots.restored(reader)
    assert [counts(pool) for pool in kv.snapshots.pools] == [(3, 0, 1, 0), (2, 0, 1, 0)]


def test_known_tokens_end_at_the_border_before_a_prompt_leaves_the_cache() -> None:
    kv = manager()
    seq = admit(kv, PROMPT)
    assert kv.snapshots.known_tokens(seq) == 0
    run(kv, seq, EVERY)
    compute(kv, seq)
    kv.release(seq)
    other = admit(kv, [*PROMPT[: 5 * B], 1, 2, 3])
    assert (other.num_computed, kv.snapshots.known_tokens(other)) == (EVERY, 4 * B)


def test_what_saves_most_stays_longest_but_not_for_ever() -> None:
    pool = SnapshotPool(3)
    blocks = [Block(bytes([i]), PrefixIdentity(), b"", i + 1) for i in range(9)]

    def keep(index: int, saved_tokens: int) -> None:
        slot = pool.take()
        assert slot is not None
        pool.attach(slot, blocks[index], saved_tokens)

    for index, saved_tokens in enumerate((1000, 100, 100)):
        keep(index, saved_tokens)
    keep(3, 100)
    assert [pool.holds(block) for block in blocks[:4]] == [True, False, True, True]
    pool.pin(blocks[2])
    pool.unpin(blocks[2])
    keep(4, 100)
    assert [pool.holds(block) for block in blocks[:5]] == [True, False, True, False, True]
    num_kept = 0
    while pool.holds(blocks[0]):
        keep(5 + num_kept % 4, 100)
        num_kept += 1
        assert num_kept < 100
    assert num_kept > 10
    assert pool.num_free + pool.num_taken + pool.num_held == 3


def test_a_snapshot_counts_for_the_tokens_since_the_last_one() -> None:
    kv = KvManager(99, B, snapshots=(SnapshotSpec(3, B),))
    long = [*range(40 * B)]
    seq = admit(kv, long)
    for border in (30 * B, 31 * B, 32 * B):
        assert kv.snapshots.take(seq, border)
        compute(kv, seq, border)
    kv.release(seq)
    other = admit(kv, [7] * (3 * B))
    assert kv.snapshots.take(other, 2 * B)
    compute(kv, other, 2 * B)
    # The first saves 30 blocks, the others one beyond it.
    assert [admit(kv, long[: n * B + 1]).num_computed // B for n in (30, 31, 32)] == [30, 30, 32]
