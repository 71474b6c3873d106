"""Block hashes cover everything before a block, and identities of different kinds never meet."""

from __future__ import annotations

import itertools

import pytest
import xxhash

from pegainfer_core.kv import BlockChain, BlockHasher, PrefixIdentity, pack_tokens


def hashes(token_ids: list[int], identity: PrefixIdentity, num_blocks: int) -> list[bytes]:
    chain = BlockChain(identity, BlockHasher(), 4)
    chain.extend(token_ids, num_blocks)
    return chain.hashes


def test_tokens_are_packed_as_little_endian_words() -> None:
    assert pack_tokens([1, 0x01020304]) == b"\1\0\0\0\4\3\2\1"
    with pytest.raises(OverflowError):
        pack_tokens([-1])


def test_a_hash_is_xxh3_of_parent_and_tokens() -> None:
    first, second = hashes([1, 2, 3, 4, 5, 6, 7, 8], PrefixIdentity(), 2)
    assert second == xxhash.xxh3_128_digest(first + pack_tokens([5, 6, 7, 8]))
    assert len(first) == 16


def test_a_change_reaches_every_later_block_and_no_earlier_one() -> None:
    token_ids = list(range(16))
    changed = [*token_ids[:5], 99, *token_ids[6:]]
    base, other = (hashes(ids, PrefixIdentity(), 4) for ids in (token_ids, changed))
    assert [a == b for a, b in zip(base, other, strict=True)] == [True, False, False, False]


def test_identities_differ_by_kind_and_by_where_one_part_ends() -> None:
    identities = [
        PrefixIdentity(),
        PrefixIdentity(model="s1"),
        PrefixIdentity(adapter="s1"),
        PrefixIdentity(cache_salt="s1"),
        PrefixIdentity(adapter="s", cache_salt="1"),
        PrefixIdentity(model="s1", adapter="s1"),
        PrefixIdentity(adapter="s1", cache_salt="s1"),
        PrefixIdentity(cache_salt="s2"),
        PrefixIdentity(cache_salt="\ud800"),
    ]
    roots = [BlockHasher().root(identity) for identity in identities]
    assert all(a != b for a, b in itertools.combinations(roots, 2))


def test_a_chain_hashes_each_block_once() -> None:
    calls: list[bytes] = []

    def counting(data: bytes) -> bytes:
        calls.append(data)
        return xxhash.xxh3_128_digest(data)

    chain = BlockChain(PrefixIdentity(), BlockHasher(counting), 4)
    token_ids = list(range(16))
    chain.extend(token_ids, 2)
    chain.extend(token_ids, 1)
    chain.extend(token_ids, 4)
    assert len(calls) == 5  # the root and four blocks
    whole = hashes(token_ids, PrefixIdentity(), 4)
    assert chain.hashes == whole
