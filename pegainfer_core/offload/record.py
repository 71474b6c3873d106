"""How a page lies in host memory and in tiers: its bytes, then a trailer that proves them.

The trailer is written when a record leaves host memory and checked when it comes back, so no tier
is trusted: a torn, swapped or altered record is a miss.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import msgspec
import xxhash

if TYPE_CHECKING:
    from pegainfer_core.kv import PageKey

RECORD_ALIGNMENT: Final = 4096
"""Direct disk access wants addresses, offsets and sizes that are multiples of this."""

_MAGIC: Final = b"PGKV"
_VERSION: Final = 1
_TRAILER: Final = struct.Struct("<4sHHQ32s16s")


class RecordLayout(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of the records of one group.

    Attributes:
        page_bytes: Bytes of a page, which come first.
    """

    page_bytes: int

    @property
    def record_bytes(self) -> int:
        """Bytes of a record: the page and its trailer, rounded up to the alignment."""
        return -(-(self.page_bytes + _TRAILER.size) // RECORD_ALIGNMENT) * RECORD_ALIGNMENT

    def seal(self, key: PageKey, record: memoryview) -> None:
        """Write the trailer of a record whose page is complete."""
        digest = _digest(record[: self.page_bytes])
        fields = (_MAGIC, _VERSION, key.group, self.page_bytes, key.digest, digest)
        _TRAILER.pack_into(record, self.page_bytes, *fields)

    def holds(self, key: PageKey, record: memoryview) -> bool:
        """Whether a record is complete, unaltered, and this key's."""
        *head, digest = _TRAILER.unpack_from(record, self.page_bytes)
        if head != [_MAGIC, _VERSION, key.group, self.page_bytes, key.digest]:
            return False
        return bool(digest == _digest(record[: self.page_bytes]))


def _digest(content: memoryview) -> bytes:
    """`update` lets other threads run meanwhile; one-shot functions do so only since xxhash 4."""
    checksum = xxhash.xxh3_128()
    checksum.update(content)
    return checksum.digest()
