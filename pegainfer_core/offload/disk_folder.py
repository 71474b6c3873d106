"""The segments of one group in a folder: finds what is there, and grows within its limit.

Knows no key but those in the files' headers, and no thread.
"""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
import time
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from pegainfer_core.offload.disk_segment import DiskSegment, SegmentShape, SlotHeader, read_shape

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

_SEGMENT_BYTES: Final = 256 << 20
_RETRY_GROWTH_S: Final = 30.0
_NAME: Final = re.compile(r"g(\d+)-(\d{6})\.seg")


class FoundRecord(NamedTuple):
    """A record that was in the folder at the start."""

    segment: int
    header: SlotHeader


class DiskFolder:
    """Files `g<group>-<number>.seg` of one group.

    Attributes:
        segments: By number; they only grow.
        found: What was there at the start, oldest first.
    """

    def __init__(
        self,
        folder: Path,
        shape: SegmentShape,
        capacity_bytes: int,
        *,
        direct: bool,
        reserve_bytes: int,
    ) -> None:
        """Open what is there, and delete what is damaged or beyond the limit.

        Args:
            folder: Locked by this process.
            shape: Of the records; the number of slots is not used.
            capacity_bytes: Most bytes of all files together.
            direct: Go past the page cache.
            reserve_bytes: Free space to leave on the disk.
        """
        self._folder = folder
        self._capacity_bytes = capacity_bytes
        self._direct = direct
        self._reserve_bytes = reserve_bytes
        self._full_until_s = 0.0
        slot_bytes = SegmentShape.slot_bytes_of(shape.record_bytes)
        num_slots = max(_SEGMENT_BYTES // slot_bytes, 1)
        self._shape = msgspec.structs.replace(shape, num_slots=num_slots)
        self.segments: dict[int, DiskSegment] = {}
        self.found: list[FoundRecord] = []
        self._open()

    @property
    def record_bytes(self) -> int:
        """Size of a record."""
        return self._shape.record_bytes

    @property
    def file_bytes(self) -> int:
        """Size of all files."""
        return sum(segment.shape.file_bytes for segment in self.segments.values())

    def grow(self) -> int | None:
        """Make one more segment; returns its number, None where there is no room.

        Slow: allocates space on the disk.
        """
        shape = self._shape.fitting(self._capacity_bytes - self.file_bytes)
        if shape is None or time.monotonic() < self._full_until_s:
            return None
        number = max(self.segments, default=-1) + 1
        try:
            if shutil.disk_usage(self._folder).free - shape.file_bytes < self._reserve_bytes:
                raise OSError(f"less than {self._reserve_bytes / 2**30:g} GiB would be left free")
            path = self._folder / f"g{shape.group}-{number:06d}.seg"
            self.segments[number] = DiskSegment.create(path, shape, direct=self._direct)
        except OSError as error:
            self._full_until_s = time.monotonic() + _RETRY_GROWTH_S
            logger.warning("KV offload to %s does not grow: %s", self._folder, error)
            return None
        return number

    def close(self) -> None:
        """Close every file."""
        for segment in self.segments.values():
            segment.close()

    def _open(self) -> None:
        for path in sorted(self._folder.glob(f"g{self._shape.group}-*")):
            name = _NAME.fullmatch(path.name)
            shape = read_shape(path) if name else None
            if name is None or shape is None or not self._shape.is_like(shape):
                logger.warning("%s is damaged or unfinished; deleted", path)
                with contextlib.suppress(OSError):
                    path.unlink()
                continue
            number = int(name[2])
            segment = self.segments[number] = DiskSegment(path, shape, direct=self._direct)
            self.found += [FoundRecord(number, header) for header in segment.scan()]
        self.found.sort(key=lambda record: record.header.stamp)
        self._shrink()

    def _shrink(self) -> None:
        """A smaller limit than last time: the segments whose newest record is oldest go."""
        newest = dict.fromkeys(self.segments, -1)
        newest |= {record.segment: record.header.stamp for record in self.found}
        for number in sorted(self.segments, key=newest.__getitem__):
            if self.file_bytes <= self._capacity_bytes:
                break
            self.segments.pop(number).remove()
        self.found = [record for record in self.found if record.segment in self.segments]
