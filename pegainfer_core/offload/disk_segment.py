"""One file of record slots: a superblock, a header block for each slot, then the records.

    block 0            superblock: version, group, sizes, identity, checksum
    blocks 1..slots    header of each slot: version, key, stamp, checksum; zeros when it is empty
    from there         the records, back to back

A slot's header is written after its record and wiped before the next one is written, so that a
process that dies at any moment leaves no header without its record. Headers lie together: the whole
file is indexed by one read of a thousandth of it. Decides nothing about which record goes where.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import xxhash

from pegainfer_core.offload.direct_file import BLOCK_BYTES, DirectFile, aligned_buffer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DISK_VERSION: Final = 1
"""Of the layout of folder and files; another version's data is left alone."""

_MAGIC: Final = b"PGKVSEG\0"
_SUPERBLOCK: Final = struct.Struct("<8sIIQQ32s")
_HEADER: Final = struct.Struct("<8sIIQQ32s")
_CHECKSUM: Final = struct.Struct("<Q")


class SegmentShape(msgspec.Struct, frozen=True, kw_only=True):
    """What all files of one group share, and how many slots this one has.

    Attributes:
        group: KV group of the records.
        record_bytes: Size of a record.
        num_slots: Slots.
        identity: 32 bytes that stand for the model.
    """

    group: int
    record_bytes: int
    num_slots: int
    identity: bytes

    @property
    def records_offset(self) -> int:
        """Where the first record lies."""
        return (1 + self.num_slots) * BLOCK_BYTES

    @property
    def file_bytes(self) -> int:
        """Size of the file."""
        return self.records_offset + self.num_slots * self.record_bytes

    @staticmethod
    def slot_bytes_of(record_bytes: int) -> int:
        """Bytes of a file that one more slot takes."""
        return record_bytes + BLOCK_BYTES

    def fitting(self, room_bytes: int) -> SegmentShape | None:
        """The same with as many slots as fit into so many bytes; None if not one does."""
        room = (room_bytes - BLOCK_BYTES) // self.slot_bytes_of(self.record_bytes)
        num_slots = min(self.num_slots, room)
        return msgspec.structs.replace(self, num_slots=num_slots) if num_slots > 0 else None

    def is_like(self, other: SegmentShape) -> bool:
        """Whether all but the number of slots is equal."""
        return msgspec.structs.replace(other, num_slots=self.num_slots) == self

    def superblock(self) -> bytes:
        """What block 0 begins with."""
        fields = (DISK_VERSION, self.group, self.record_bytes, self.num_slots, self.identity)
        return _sealed(_SUPERBLOCK.pack(_MAGIC, *fields))


class SlotHeader(NamedTuple):
    """Which record a slot holds.

    Attributes:
        number: The slot.
        digest: Of the record's key.
        stamp: Larger for later writes.
    """

    number: int
    digest: bytes
    stamp: int


class DiskSegment:
    """An open segment.

    Attributes:
        path: The file.
        shape: Its sizes.
    """

    def __init__(self, path: Path, shape: SegmentShape, *, direct: bool) -> None:
        """Open an existing file, which has this shape."""
        self.path = path
        self.shape = shape
        self._file = DirectFile(path, direct=direct)

    @classmethod
    def create(cls, path: Path, shape: SegmentShape, *, direct: bool) -> DiskSegment:
        """Make a new file with all its space allocated.

        Raises:
            OSError: There is no room.
        """
        fresh = path.with_suffix(".tmp")
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _allocate(fd, shape.file_bytes)
            os.pwrite(fd, shape.superblock(), 0)
        except BaseException:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise
        finally:
            os.close(fd)
        fresh.rename(path)
        return cls(path, shape, direct=direct)

    def scan(self) -> list[SlotHeader]:
        """The slots that hold a record."""
        blocks = aligned_buffer(self.shape.num_slots * BLOCK_BYTES)
        if not self._file.read(BLOCK_BYTES, [blocks]):
            return []
        found = (self._parse(blocks, number) for number in range(self.shape.num_slots))
        return [header for header in found if header is not None]

    def read(self, number: int, buffers: Sequence[memoryview]) -> bool:
        """Fill buffers with the records of consecutive slots; False when the file is cut short."""
        return self._file.read(self._record_offset(number), buffers)

    def write(self, number: int, buffers: Sequence[memoryview]) -> None:
        """Write the records of consecutive slots, whose headers are wiped.

        Raises:
            OSError: The disk is full, or at fault.
        """
        self._file.write(self._record_offset(number), buffers)

    def mark(self, headers: Sequence[SlotHeader]) -> None:
        """Write the headers of consecutive slots."""
        blocks = aligned_buffer(len(headers) * BLOCK_BYTES)
        shape = self.shape
        for i, header in enumerate(headers):
            fields = (DISK_VERSION, shape.group, shape.record_bytes, header.stamp, header.digest)
            packed = _sealed(_HEADER.pack(_MAGIC, *fields))
            blocks[i * BLOCK_BYTES : i * BLOCK_BYTES + len(packed)] = packed
        self._file.write((1 + headers[0].number) * BLOCK_BYTES, [blocks])

    def wipe(self, number: int, count: int = 1) -> None:
        """Empty the headers of consecutive slots."""
        self._file.write((1 + number) * BLOCK_BYTES, [aligned_buffer(count * BLOCK_BYTES)])

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def remove(self) -> None:
        """Close the file and delete it."""
        self.close()
        with contextlib.suppress(OSError):
            self.path.unlink()

    def _record_offset(self, number: int) -> int:
        return self.shape.records_offset + number * self.shape.record_bytes

    def _parse(self, blocks: memoryview, number: int) -> SlotHeader | None:
        fields = _opened(_HEADER, blocks, number * BLOCK_BYTES)
        expected = (_MAGIC, DISK_VERSION, self.shape.group, self.shape.record_bytes)
        if fields is None or fields[:4] != expected:
            return None
        return SlotHeader(number, fields[5], fields[4])


def _allocate(fd: int, num_bytes: int) -> None:
    """Take the space now, so that a full disk shows here and writes change no file size."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(fd, 0, num_bytes)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
        else:
            return
    os.ftruncate(fd, num_bytes)  # The file system cannot; a file of holes will do.


def read_shape(path: Path) -> SegmentShape | None:
    """What a file says of itself; None for one that is damaged, foreign or cut short."""
    try:
        with path.open("rb") as file:
            block = file.read(BLOCK_BYTES)
        if len(block) < BLOCK_BYTES:
            return None
        fields = _opened(_SUPERBLOCK, memoryview(block), 0)
        if fields is None or fields[:2] != (_MAGIC, DISK_VERSION):
            return None
        group, record_bytes, num_slots, identity = fields[2:]
        shape = SegmentShape(
            group=group, record_bytes=record_bytes, num_slots=num_slots, identity=identity
        )
        return shape if path.stat().st_size == shape.file_bytes else None
    except OSError:
        return None


def _sealed(packed: bytes) -> bytes:
    return packed + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(packed))


def _opened(
    layout: struct.Struct, block: memoryview, offset: int
) -> tuple[bytes, int, int, int, int, bytes] | None:
    """The fields at an offset, None when their checksum does not fit."""
    packed = block[offset : offset + layout.size]
    (checksum,) = _CHECKSUM.unpack_from(block, offset + layout.size)
    if checksum != xxhash.xxh3_64_intdigest(packed):
        return None
    magic, version, group, size, number, digest = layout.unpack(packed)
    return magic, version, group, size, number, digest
