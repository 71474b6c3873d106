"""Keys of pages: of all tokens before their end, made once, and taken over from known blocks."""

from __future__ import annotations

import pytest

from pegainfer_core.contract import GenerateRequest
from pegainfer_core.engine import Sequence
from pegainfer_core.kv import BlockChain, KvManager
from pegainfer_core.offload import PageKeys, page_keys

SIZE = 4
IDS = [3 * i % 50 for i in range(10 * SIZE)]


def chain_of(kv: KvManager, token_ids: list[int], salt: str = "") -> BlockChain:
    chain = kv.new_chain(cache_salt=salt)
    assert chain is not None
    chain.extend(token_ids, len(token_ids) // SIZE)
    return chain


def names(kv: KvManager, token_ids: list[int], salt: str = "", identity: str = "m") -> list[bytes]:
    keys = PageKeys(identity, chain_of(kv, token_ids, salt))
    return [key.digest for key in keys.of(0, len(token_ids) // SIZE)[0]]


def test_a_key_names_all_that_comes_before() -> None:
    kv = KvManager(40, SIZE)
    base = names(kv, IDS)
    assert len(set(base)) == 10 and all(len(digest) == 32 for digest in base)
    assert names(kv, IDS) == base
    changed = [*IDS[: 5 * SIZE], 49, *IDS[5 * SIZE + 1 :]]
    assert [a == b for a, b in zip(names(kv, changed), base, strict=True)] == [True] * 5 + [
        False
    ] * 5
    for others in (names(kv, IDS, "s"), names(kv, IDS, identity="n")):
        assert not set(others) & set(base)


def test_parts_are_the_whole() -> None:
    kv = KvManager(40, SIZE)
    whole = names(kv, IDS)
    keys = PageKeys("m", chain_of(kv, IDS))
    assert keys.of(0, 2)[1] is None
    for first, end in ((2, 3), (3, 3), (3, 9), (5, 7)):
        found, parent = keys.of(first, end)
        assert [key.digest for key in found] == whole[first:end]
        assert parent is not None and parent.digest == whole[first - 1]


def test_known_blocks_are_not_digested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next turn of a conversation takes the keys of its prefix from the device's cache."""
    kv = KvManager(40, SIZE)
    made: list[int] = []
    extended = page_keys.extended_digests

    def counting(parent: bytes, blocks: list[bytes]) -> list[bytes]:
        made.append(len(blocks))
        return extended(parent, blocks)

    monkeypatch.setattr(page_keys, "extended_digests", counting)
    found = []
    for turn in range(2):
        ids = IDS[: (6 + 3 * turn) * SIZE + 1]
        request = GenerateRequest(request_id=1, prompt_token_ids=ids)
        sequence = Sequence(request, 4, chain=kv.new_chain())
        assert kv.admit(sequence, reserve_tokens=len(ids), room_tokens=len(ids))
        assert kv.grow(sequence, len(ids))
        sequence.num_computed = sequence.num_completed = len(ids)
        kv.commit((sequence,))
        assert sequence.chain is not None
        num_blocks = len(sequence.chain.blocks)
        found.append(PageKeys("m", sequence.chain).of(0, num_blocks)[0])
        kv.release(sequence)
    assert made == [6, 3]
    assert found[1][:6] == found[0]
    monkeypatch.undo()
    assert [key.digest for key in found[1]] == names(KvManager(40, SIZE), IDS[: 9 * SIZE])
