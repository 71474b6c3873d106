"""vLLM's block hashes, for routers and stores that compute them themselves.

Equal to vLLM started with `--prefix-caching-hash-algo xxhash_cbor` or `sha256_cbor` and
PYTHONHASHSEED set to the same seed. Knows nothing of pages.
"""

from __future__ import annotations

from functools import cache
from struct import Struct
from typing import TYPE_CHECKING

import xxhash

from pegainfer_core.kv.hashing import BlockHasher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pegainfer_core.kv.hashing import HashFunction, PrefixIdentity

_UNSIGNED, _BYTES, _TEXT, _ARRAY = 0, 2, 3, 4
_NULL = b"\xf6"
_TOKEN_BYTES = 4


class CborBlockHasher(BlockHasher):
    """hash(canonical CBOR (RFC 8949, 4.2.1) of [parent hash, [token, ...], extra keys or null]).

    The root is the hash of the seed as CBOR text. Extra keys are the adapter on every block and the
    salt on the first. What they leave out (the model) and what they confuse (an adapter and a
    salt of one spelling) is told apart where blocks are compared, so it costs hits, not truth.
    """

    def __init__(self, function: HashFunction = xxhash.xxh3_128_digest, *, seed: str = "0") -> None:
        """Choose the scheme.

        Args:
            function: xxh3-128 for `xxhash_cbor`, SHA-256 for `sha256_cbor`.
            seed: What PYTHONHASHSEED is for the vLLM servers.
        """
        super().__init__(function)
        self._root = function(_text(seed))
        self._tokens = _TokenCodes()

    def root(self, identity: PrefixIdentity) -> bytes:
        """The same for all identities."""
        return self._root

    def extend(
        self, identity: PrefixIdentity, parent: bytes | None, blocks: Iterable[bytes]
    ) -> list[bytes]:
        """Hashes of consecutive blocks, each given as packed tokens."""
        function, codes = self._function, self._tokens.__getitem__
        later_keys = _keys(self.extra_keys(identity, False))
        keys = _keys(self.extra_keys(identity, True)) if parent is None else later_keys
        previous = self._root if parent is None else parent
        hashes = []
        for token_bytes in blocks:
            num_bytes = len(token_bytes)
            before, between = _heads(len(previous), num_bytes // _TOKEN_BYTES)
            tokens = map(codes, _unpacker(num_bytes)(token_bytes))
            previous = function(b"".join((before, previous, between, *tokens, keys)))
            hashes.append(previous)
            keys = later_keys
        return hashes

    def next(self, identity: PrefixIdentity, parent: bytes | None, token_bytes: bytes) -> bytes:
        """Hash of one block, as `extend` would give it."""
        return self.extend(identity, parent, (token_bytes,))[0]

    def extra_keys(self, identity: PrefixIdentity, is_first: bool) -> tuple[str, ...] | None:
        """The adapter, and on a first block the salt; None where there is neither."""
        adapter, salt = identity.adapter, identity.cache_salt if is_first else ""
        if not (adapter or salt):
            return None
        return tuple(key for key in (adapter, salt) if key)


class _TokenCodes(dict[int, bytes]):
    """CBOR of the tokens met so far: a vocabulary has far fewer than prompts have tokens."""

    def __missing__(self, token_id: int) -> bytes:
        code = self[token_id] = _head(_UNSIGNED, token_id)
        return code


def _head(major_type: int, value: int) -> bytes:
    """An item's type and value, or length, in as few bytes as hold it."""
    kind = major_type << 5
    if value < 24:
        return bytes([kind | value])
    for code, size in ((24, 1), (25, 2), (26, 4)):
        if value < 1 << (8 * size):
            return bytes([kind | code]) + value.to_bytes(size, "big")
    return bytes([kind | 27]) + value.to_bytes(8, "big")


@cache
def _heads(parent_bytes: int, num_tokens: int) -> tuple[bytes, bytes]:
    """What stands before the parent's hash, and between it and the tokens."""
    return b"\x83" + _head(_BYTES, parent_bytes), _head(_ARRAY, num_tokens)


@cache
def _unpacker(num_bytes: int) -> Callable[[bytes], tuple[int, ...]]:
    return Struct(f"<{num_bytes // _TOKEN_BYTES}I").unpack


def _text(value: str) -> bytes:
    content = value.encode("utf-8", "surrogatepass")
    return _head(_TEXT, len(content)) + content


def _keys(keys: tuple[str, ...] | None) -> bytes:
    if keys is None:
        return _NULL
    return _head(_ARRAY, len(keys)) + b"".join(map(_text, keys))
