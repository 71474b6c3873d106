"""Digests that name the content of pages outside the device, where nobody compares tokens.

Knows neither pages nor tiers. SHA-256, because equal digests are taken for equal content; it does
not use the prefix cache's hash function, so a weak one cannot mislead a tier.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pegainfer_core.kv import PrefixIdentity


def root_digest(pages: str, identity: PrefixIdentity) -> bytes:
    """What a sequence's first page follows: every part of what it is, tagged and measured.

    Args:
        pages: Digest of all that shapes pages beside their tokens.
        identity: Of the sequence.
    """
    digest = hashlib.sha256()
    for kind, value in {"pages": pages, **msgspec.structs.asdict(identity)}.items():
        content = value.encode("utf-8", "surrogatepass")
        digest.update(kind.encode() + b"\0" + len(content).to_bytes(8, "little") + content)
    return digest.digest()


def extended_digests(parent: bytes, blocks: Iterable[bytes]) -> list[bytes]:
    """Digests of consecutive pages after `parent`, each given as its packed tokens."""
    sha256 = hashlib.sha256
    digests = []
    for token_bytes in blocks:
        parent = sha256(parent + token_bytes).digest()
        digests.append(parent)
    return digests
