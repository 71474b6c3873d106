"""Pages for sequences: prefixes found again, reservations kept, identities apart."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

import pytest
import xxhash

from pegainfer_core.kv import BlockChain, BlockHasher, KvManager, PageError

B = 4


@dataclass
class Seq:
    """The least a manager needs of a sequence."""

    token_ids: list[int]
    chain: BlockChain | None
    num_computed: int = 0
    num_completed: int = 0
    page_ids: list[int] = field(default_factory=list)
    num_reserved_pages: int = 0
    due_tokens: int = sys.maxsize


def manager(num_usable_pages: int = 20, **options: object) -> KvManager:
    return KvManager(num_usable_pages + 1, B, **options)  # type: ignore[arg-type]


def admit(kv: KvManager, token_ids: list[int], use_cache: bool = True, **identity: str) -> Seq:
    seq = Seq(list(token_ids), kv.new_chain(**identity))
    num_tokens = len(token_ids)
    assert kv.admit(seq, reserve_tokens=num_tokens, room_tokens=num_tokens, use_cache=use_cache)
    return seq


def compute(kv: KvManager, seq: Seq, num_tokens: int | None = None) -> None:
    """Pretend that a step computed the first `num_tokens` tokens."""
    num_tokens = len(seq.token_ids) if num_tokens is None else num_tokens
    assert kv.grow(seq, num_tokens)
    seq.num_computed = seq.num_completed = num_tokens
    kv.commit([seq])


def serve(kv: KvManager, token_ids: list[int], **identity: str) -> int:
    """Run a sequence to its end; returns how many tokens the cache gave."""
    seq = admit(kv, token_ids, **identity)
    cached = seq.num_computed
    compute(kv, seq)
    kv.release(seq)
    return cached


@pytest.mark.parametrize("length", range(1, 4 * B + 2))
def test_exact_repeat_leaves_at_least_one_token(length: int) -> None:
    kv = manager()
    token_ids = list(range(length))
    assert serve(kv, token_ids) == 0
    assert serve(kv, token_ids) == (length - 1) // B * B


@pytest.mark.parametrize("length", range(1, 4 * B + 2))
def test_pages_are_those_the_tokens_need_and_no_more(length: int) -> None:
    kv = manager()
    seq = admit(kv, list(range(length)))
    assert seq.page_ids == []
    for num_tokens in range(1, length + 1):
        compute(kv, seq, num_tokens)
        assert len(seq.page_ids) == -(-num_tokens // B)
    kv.release(seq)
    assert kv.pool.num_used == 0


def test_only_full_computed_pages_are_published() -> None:
    kv = manager()
    seq = admit(kv, list(range(3 * B)))
    kv.grow(seq, 3 * B)
    seq.num_computed = seq.num_completed = 2 * B - 1
    kv.commit([seq])
    kv.release(seq)
    assert (kv.pool.num_cached, kv.pool.num_free) == (1, 19)
    assert serve(kv, list(range(3 * B))) == B


def test_generated_tokens_are_found_by_the_next_turn() -> None:
    kv = manager()
    seq = admit(kv, list(range(B)))
    for token_id in range(100, 100 + 2 * B):
        compute(kv, seq)
        seq.token_ids.append(token_id)
    kv.release(seq)
    assert serve(kv, [*seq.token_ids, 7]) == 2 * B


def test_without_cache_pages_go_straight_back() -> None:
    kv = manager(prefix_cache=False)
    for _ in range(2):
        assert serve(kv, list(range(3 * B))) == 0
        assert (kv.pool.num_free, kv.pool.num_cached) == (20, 0)


def test_bypass_computes_everything_and_still_publishes() -> None:
    kv = manager()
    token_ids = list(range(2 * B + 1))
    serve(kv, token_ids)
    seq = admit(kv, token_ids, use_cache=False)
    assert seq.num_computed == 0
    compute(kv, seq)
    kv.release(seq)
    assert kv.pool.num_cached == 2  # not two copies of each
    assert serve(kv, token_ids) == 2 * B


def test_bypass_after_a_preemption_forgets_what_it_had_published() -> None:
    kv = manager()
    seq = admit(kv, list(range(3 * B)), use_cache=False)
    compute(kv, seq, 2 * B)
    kv.release(seq)
    assert kv.admit(seq, reserve_tokens=3 * B, room_tokens=3 * B, use_cache=False)
    assert (seq.num_computed, seq.page_ids) == (0, [])
    compute(kv, seq)
    kv.release(seq)
    assert kv.pool.num_cached == 3


IDENTITIES = [
    {},
    {"adapter": "x-v1"},
    {"adapter": "y"},
    {"adapter": "x-v2"},
    {"cache_salt": "s1"},
    {"adapter": "s1"},
    {"cache_salt": "s2"},
    {"adapter": "y", "cache_salt": "s1"},
]


@pytest.mark.parametrize("constant_hash", [False, True])
def test_only_equal_identities_share(constant_hash: bool) -> None:
    hasher = BlockHasher(lambda data: b"same") if constant_hash else None
    kv = manager(100, hasher=hasher)
    prompt = list(range(4 * B + 1))
    assert [serve(kv, prompt, **identity) for identity in IDENTITIES] == [0] * len(IDENTITIES)
    again = [serve(kv, prompt, **identity) for identity in IDENTITIES]
    if constant_hash:
        # One hash holds one block: the first one published. Never a wrong one.
        assert again == [B] + [0] * (len(IDENTITIES) - 1)
    else:
        assert again == [4 * B] * len(IDENTITIES)


def test_models_of_different_content_hash_differently() -> None:
    chains = [manager(model_identity=name).new_chain() for name in ("a", "b")]
    for chain in chains:
        assert chain is not None
        chain.extend(list(range(B)), 1)
    assert chains[0] is not None and chains[1] is not None
    assert chains[0].hashes != chains[1].hashes


def test_constant_hash_never_matches_other_tokens_or_other_parents() -> None:
    kv = manager(hasher=BlockHasher(lambda data: b"same"))
    a, b = list(range(B)), list(range(50, 50 + B))
    serve(kv, [*a, 1])
    assert serve(kv, [*b, 1]) == 0
    assert serve(kv, [*a, *a, 1]) == B  # the second block equals the first but for its parent
    kv.reset_prefix_cache()
    serve(kv, [*b, 1])
    assert serve(kv, [*a, *b, 1]) == 0


def test_a_foreign_block_of_the_same_hash_stops_publishing_only_while_it_lasts() -> None:
    kv = manager(hasher=BlockHasher(lambda data: b"same"))
    a, b = list(range(B + 1)), list(range(50, 51 + B))
    serve(kv, a)
    seq = admit(kv, b)
    compute(kv, seq)
    assert seq.chain is not None and seq.chain.closed
    kv.release(seq)
    kv.reset_prefix_cache()
    assert kv.admit(seq, reserve_tokens=B + 1, room_tokens=B + 1)
    compute(kv, seq)
    kv.release(seq)
    assert serve(kv, b) == B


def test_equal_sequences_side_by_side_keep_their_pages_and_leave_one_copy() -> None:
    kv = manager()
    token_ids = list(range(3 * B))
    twins = [admit(kv, token_ids) for _ in range(3)]
    for twin in twins:
        compute(kv, twin)
    assert len({page_id for twin in twins for page_id in twin.page_ids}) == 9
    for left, twin in zip((6, 3, 0), twins, strict=True):
        kv.release(twin)
        assert kv.pool.num_used == left
    assert kv.pool.num_cached == 3


def test_an_idle_copy_goes_when_another_one_is_published() -> None:
    kv = manager()
    token_ids = list(range(2 * B))
    early, late = admit(kv, token_ids), admit(kv, token_ids)
    compute(kv, early)
    kv.release(early)
    assert kv.pool.num_cached == 2
    compute(kv, late)
    assert (kv.pool.num_cached, kv.pool.num_used) == (0, 2)
    kv.release(late)
    assert kv.pool.num_cached == 2


def test_leaves_are_given_up_before_what_they_build_on() -> None:
    kv = manager(8)
    stem = list(range(2 * B))
    serve(kv, [*stem, *range(100, 100 + 2 * B)])  # stem + two blocks
    serve(kv, [*stem, *range(200, 200 + 2 * B)])  # stem + two other blocks
    assert kv.pool.num_cached == 6
    filler = admit(kv, list(range(300, 300 + 6 * B)))
    compute(kv, filler)
    assert kv.pool.num_evicted == 4
    kv.release(filler)
    assert admit(kv, [*stem, 1]).num_computed == 2 * B


def test_blocks_that_outlive_their_parents_give_way() -> None:
    kv = manager(6)
    token_ids = list(range(4 * B))
    seq = admit(kv, token_ids)
    compute(kv, seq)
    held = seq.page_ids[2:]
    kv.pool.share(held)  # as a copy to other memory does, which ends after the sequence
    kv.release(seq)
    serve(kv, list(range(100, 100 + 3 * B)))  # takes two free pages and the second block's
    assert kv.pool.num_evicted == 1
    kv.pool.release(held)
    assert serve(kv, [*token_ids, 1]) == B
    assert serve(kv, [*token_ids, 1]) == 4 * B
    assert kv.pool.num_used == 0


def test_used_prefix_is_shared_not_copied() -> None:
    kv = manager(5)
    stem = list(range(2 * B))
    first = admit(kv, [*stem, 100])
    compute(kv, first)
    second = admit(kv, [*stem, 200])
    compute(kv, second)
    assert first.page_ids[:2] == second.page_ids[:2]
    assert kv.pool.num_used == 4
    kv.release(first)
    assert kv.pool.num_used == 3


def test_admission_counts_idle_prefix_pages_as_needed() -> None:
    kv = manager(4)
    stem = list(range(2 * B))
    serve(kv, stem)
    other = admit(kv, list(range(100, 100 + 2 * B)))
    compute(kv, other)
    assert (kv.pool.num_cached, kv.pool.num_free) == (2, 0)
    # Its prefix is there, but two idle pages cannot be both the prefix and the rest.
    seq = Seq([*stem, *range(B)], kv.new_chain())
    assert not kv.admit(seq, reserve_tokens=3 * B, room_tokens=3 * B)
    assert (seq.page_ids, seq.num_computed, kv.pool.num_cached) == ([], 0, 2)


def test_reserved_pages_are_out_of_reach_for_others() -> None:
    kv = manager(6)
    first = admit(kv, list(range(4 * B)))
    assert (kv.num_available, kv.pool.num_used) == (2, 0)
    second = Seq(list(range(100, 100 + 3 * B)), kv.new_chain())
    assert not kv.admit(second, reserve_tokens=B, room_tokens=3 * B)
    assert kv.admit(second, reserve_tokens=B, room_tokens=2 * B)
    assert kv.grow(second, 2 * B)
    assert not kv.grow(second, 2 * B + 1)
    compute(kv, first)
    kv.release(first)
    assert kv.grow(second, 3 * B)
    kv.release(second)
    assert kv.num_available == 6


def test_preempted_sequence_finds_its_own_pages() -> None:
    calls = 0

    def counting(data: bytes) -> bytes:
        nonlocal calls
        calls += 1
        return xxhash.xxh3_128_digest(data)

    kv = manager(hasher=BlockHasher(counting))
    seq = admit(kv, list(range(4 * B)))
    compute(kv, seq)
    seq.token_ids.append(77)
    hashed = calls
    kv.release(seq)
    kv.pool.discard(list(kv.pool._cached)[:2])  # the last two blocks
    assert kv.admit(seq, reserve_tokens=17, room_tokens=17)
    assert seq.num_computed == 2 * B
    compute(kv, seq)
    assert calls == hashed
    assert kv.pool.num_used == 5


def test_reset_spares_what_is_in_use() -> None:
    kv = manager()
    seq = admit(kv, list(range(2 * B)))
    compute(kv, seq)
    serve(kv, list(range(50, 50 + 2 * B)))
    kv.reset_prefix_cache()
    assert (kv.pool.num_cached, kv.pool.num_used) == (0, 2)
    kv.release(seq)
    assert serve(kv, list(range(50, 51 + 2 * B))) == 0


def test_admitting_twice_is_refused() -> None:
    kv = manager()
    seq = admit(kv, list(range(2 * B)))
    compute(kv, seq)
    with pytest.raises(PageError, match="admitted again"):
        kv.admit(seq, reserve_tokens=1, room_tokens=1)


def test_a_prompt_nobody_has_seen_is_hashed_only_as_it_is_computed() -> None:
    kv = manager(2000)
    seq = admit(kv, list(range(1000 * B)))
    assert seq.chain is not None and len(seq.chain.hashes) <= 64
    compute(kv, seq)
    assert len(seq.chain.hashes) == 1000


def test_the_next_turn_is_hashed_only_where_nobody_went_before() -> None:
    calls = 0

    def counting(data: bytes) -> bytes:
        nonlocal calls
        calls += 1
        return xxhash.xxh3_128_digest(data)

    kv = manager(2000, hasher=BlockHasher(counting))
    stem = list(range(100 * B))
    turns = [[*stem, *range(start, start + 200 * B)] for start in (5000, 9000)]
    for turn in turns:
        serve(kv, turn)
    for turn in turns:  # behind the common stem, each finds its own way again
        calls = 0
        seq = admit(kv, [*turn, *range(3 * B)])
        assert seq.num_computed == 300 * B
        assert calls <= 1 + 3 * 64
        assert seq.page_ids == [block.page_id for block in seq.chain.blocks]  # type: ignore[union-attr]
        compute(kv, seq)
        assert seq.chain is not None and len(seq.chain.blocks) == 303
        whole = kv.new_chain()
        assert whole is not None
        whole.extend(seq.token_ids, 303)
        assert seq.chain.hashes == whole.hashes
        kv.release(seq)
    assert kv.pool.num_used == 0


def test_a_way_ends_where_pages_were_given_up() -> None:
    kv = manager(300)
    conversation = list(range(200 * B))
    serve(kv, conversation)
    filler = admit(kv, list(range(10_000, 10_000 + 150 * B)))
    compute(kv, filler)
    assert kv.pool.num_evicted == 50
    kv.release(filler)
    assert admit(kv, [*conversation, 1]).num_computed == 150 * B


def test_another_salt_takes_no_known_way() -> None:
    kv = manager(1000)
    conversation = list(range(200 * B))
    serve(kv, conversation)
    assert admit(kv, [*conversation, 1], cache_salt="s").num_computed == 0
    assert admit(kv, [*conversation[: 150 * B], 1, 2, 3]).num_computed == 150 * B
