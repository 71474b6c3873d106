"""Block hashes equal to vLLM's: goldens, and canonical CBOR against a second encoder."""

from __future__ import annotations

import hashlib
from typing import Any

import cbor2
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from pegainfer_core.kv import (
    BlockChain,
    CborBlockHasher,
    HashFunction,
    KvManager,
    PrefixIdentity,
    pack_tokens,
)
from tests.kv.test_manager import B, admit, compute, serve


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def reference(function: HashFunction, *items: Any) -> bytes:
    """vLLM's hash of a block, or of its seed, by another encoder of CBOR."""
    content = items[0] if len(items) == 1 else items
    return function(cbor2.dumps(content, canonical=True))


@pytest.mark.parametrize(
    ("seed", "root"),
    [("0", "1ebe36576dcb573f26b99533a20aaeca"), ("42", "a9d2e63407fce1a26c9dc9d7fa2d7caf")],
)
def test_root_is_the_hash_of_the_seed(seed: str, root: str) -> None:
    assert CborBlockHasher(seed=seed).root(PrefixIdentity()).hex() == root
    assert CborBlockHasher(seed=seed).root(PrefixIdentity(model="m", adapter="a")).hex() == root


def test_published_chain() -> None:
    blocks = [pack_tokens(ids) for ids in ([1, 2, 3, 4], [5, 6, 7, 8], [9, 10])]
    expected = [
        "0a8577df5ee3430515a8cc1f6e3ac52e",
        "d152782cb4d753bde718a811a3b75e23",
        "7157acec76700e416a50d67e2334f6f6",
    ]
    hasher, identity = CborBlockHasher(), PrefixIdentity()
    hashes = hasher.extend(identity, None, blocks)
    assert [block_hash.hex() for block_hash in hashes] == expected
    assert hasher.next(identity, None, blocks[0]) == hashes[0]
    assert hasher.next(identity, hashes[0], blocks[1]) == hashes[1]


@given(
    blocks=st.lists(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=40), min_size=1),
    adapter=st.text(max_size=300),
    salt=st.text(max_size=300),
    seed=st.text(max_size=30),
    function=st.sampled_from([xxhash.xxh3_128_digest, sha256]),
)
def test_any_chain_is_that_of_another_encoder(
    blocks: list[list[int]], adapter: str, salt: str, seed: str, function: HashFunction
) -> None:
    identity = PrefixIdentity(model="any", adapter=adapter, cache_salt=salt)
    parent = reference(function, seed)
    expected = []
    for index, ids in enumerate(blocks):
        keys = [key for key in (adapter, salt if index == 0 else "") if key]
        parent = reference(function, parent, ids, keys or None)
        expected.append(parent)
    hasher = CborBlockHasher(function, seed=seed)
    assert hasher.extend(identity, None, map(pack_tokens, blocks)) == expected


def test_a_chain_knows_what_its_hashes_cover() -> None:
    chain = BlockChain(PrefixIdentity(adapter="a", cache_salt="s"), CborBlockHasher(), 4)
    assert chain.extra_keys(True) == ("a", "s")
    assert chain.extra_keys(False) == ("a",)
    assert BlockChain(PrefixIdentity(), CborBlockHasher(), 4).extra_keys(True) is None


def test_an_adapter_and_a_salt_of_one_spelling_have_one_hash_and_never_share() -> None:
    kv = KvManager(50, B, hasher=CborBlockHasher())
    prompt = list(range(2 * B + 1))
    adapted, salted = admit(kv, prompt, adapter="x"), admit(kv, prompt, cache_salt="x")
    assert adapted.chain is not None and salted.chain is not None
    compute(kv, adapted)
    compute(kv, salted)
    assert adapted.chain.hashes[0] == salted.chain.hashes[0]
    assert salted.chain.closed
    kv.release(adapted)
    kv.release(salted)
    assert serve(kv, prompt, adapter="x") == 2 * B
    assert serve(kv, prompt, cache_salt="x") == 0
