"""Content hashes of KV blocks: each names its tokens and, through its parent, all before them.

Knows nothing of pages. A hash only finds candidates; whoever uses one compares the tokens.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable

import msgspec
import xxhash

_BIG_ENDIAN = sys.byteorder == "big"

HashFunction = Callable[[bytes], bytes]
"""Digest of a byte string; 16 bytes for the default, xxh3-128."""


class PrefixIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What must be equal, beside the tokens, for two sequences to share KV.

    Attributes:
        model: Content of the base model and of everything that shapes its KV.
        adapter: Content of the adapter (not its name, which may be given to other weights).
        cache_salt: The client's own partition.
    """

    model: str = ""
    adapter: str = ""
    cache_salt: str = ""


class BlockHasher:
    """Turns token blocks into chained hashes.

    The root hash covers the identity, every part tagged with its kind and length, so that an
    adapter and a salt of one spelling differ. A block's hash is hash(parent hash + token bytes).
    """

    def __init__(self, function: HashFunction = xxhash.xxh3_128_digest) -> None:
        self._function = function

    def root(self, identity: PrefixIdentity) -> bytes:
        """Parent hash of a sequence's first block."""
        parts = bytearray()
        for kind, value in msgspec.structs.asdict(identity).items():
            content = value.encode("utf-8", "surrogatepass")
            parts += kind.encode() + b"\0" + len(content).to_bytes(8, "little") + content
        return self._function(bytes(parts))

    def extend(
        self, identity: PrefixIdentity, parent: bytes | None, blocks: Iterable[bytes]
    ) -> list[bytes]:
        """Hashes of consecutive blocks, each given as packed tokens.

        Args:
            identity: Of their sequence.
            parent: Hash of the block before them; None when they are the first.
            blocks: Their tokens, as `pack_tokens` gives them.
        """
        function = self._function
        previous = self.root(identity) if parent is None else parent
        hashes = []
        for token_bytes in blocks:
            previous = function(previous + token_bytes)
            hashes.append(previous)
        return hashes

    def next(self, identity: PrefixIdentity, parent: bytes | None, token_bytes: bytes) -> bytes:
        """Hash of one block, as `extend` would give it."""
        if parent is None:
            parent = self.root(identity)
        return self._function(parent + token_bytes)

    def extra_keys(self, identity: PrefixIdentity, is_first: bool) -> tuple[str, ...] | None:
        """What a block's hash covers by itself beside its tokens and its parent.

        Args:
            identity: Of the block's sequence.
            is_first: Whether it is the sequence's first block.
        """
        return None


def pack_tokens(token_ids: list[int]) -> bytes:
    """Token ids as little-endian unsigned 32-bit integers."""
    packed = array("I", token_ids)
    if _BIG_ENDIAN:
        packed.byteswap()
    return packed.tobytes()


def try_packing(token_ids: list[int]) -> bytes | None:
    """Packed token ids; None when one of them does not fit 32 bits without a sign."""
    try:
        return pack_tokens(token_ids)
    except OverflowError:
        return None


def unpack_tokens(token_bytes: bytes) -> list[int]:
    """Token ids of what `pack_tokens` gave."""
    packed = array("I", token_bytes)
    if _BIG_ENDIAN:
        packed.byteswap()
    return packed.tolist()
