"""Plans and makes the transfers of the disk tier, one piece at a time, on the caller's thread.

Knows slots, files and keys; which thread does what is the tier's business.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from typing import TYPE_CHECKING, Final

from pegainfer_core.offload.disk_pieces import Piece, Placed, cut_pieces
from pegainfer_core.offload.disk_segment import SlotHeader
from pegainfer_core.offload.slot_table import SlotTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pegainfer_core.kv import PageKey, TierRecord
    from pegainfer_core.offload.disk_folder import DiskFolder
    from pegainfer_core.offload.disk_segment import DiskSegment
    from pegainfer_core.offload.transfer import Transfer

_NUMBER_BITS: Final = 24
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _Group:
    """The slots of one KV group, and the files they lie in."""

    def __init__(self, folder: DiskFolder) -> None:
        self.folder = folder
        self.table: SlotTable[Placed] = SlotTable()
        self.marked: set[int] = set()
        """Slots whose header on disk may name a record."""
        self.growing = threading.Lock()
        self._adopt()

    def segment(self, slot: int) -> DiskSegment:
        """The file a slot is in."""
        return self.folder.segments[slot >> _NUMBER_BITS]

    def grow(self) -> list[int]:
        """The slots of one more file; none where there is no room."""
        number = self.folder.grow()
        return [] if number is None else self._slots(number)

    def _slots(self, segment: int) -> list[int]:
        count = self.folder.segments[segment].shape.num_slots
        return [_slot(segment, number) for number in range(count)]

    def _adopt(self) -> None:
        """Take over what was there; of two records of one key the later one stays."""
        found: dict[bytes, int] = {}
        for segment, header in self.folder.found:
            slot = _slot(segment, header.number)
            self.marked.add(slot)
            found.pop(header.digest, None)
            found[header.digest] = slot
        for digest, slot in found.items():
            self.table.adopt(digest, slot)
        held = set(found.values())
        for segment in self.folder.segments:
            self.table.add_slots(slot for slot in self._slots(segment) if slot not in held)


class DiskStore:
    """Thread-safe. Futures are ended outside its lock, since their callbacks may take long.

    Args:
        folders: By group.
    """

    def __init__(self, folders: Mapping[int, DiskFolder]) -> None:
        self._lock = threading.Lock()
        stamps = [record.header.stamp for folder in folders.values() for record in folder.found]
        self._stamp = max(stamps, default=0)
        self._groups = {group: _Group(folder) for group, folder in folders.items()}
        self._num_corrupt = 0

    def counts(self) -> tuple[int, int, int, int]:
        """Records held, their bytes, records given up for others, records lost to damage."""
        with self._lock:
            tables = [(g.table, g.folder.record_bytes) for g in self._groups.values()]
            num_records = sum(len(table) for table, _ in tables)
            used_bytes = sum(len(table) * size for table, size in tables)
            num_evicted = sum(table.num_evicted for table, _ in tables)
            return num_records, used_bytes, num_evicted, self._num_corrupt

    def contains(self, keys: Sequence[PageKey]) -> list[bool]:
        """Which keys are held. They count as used now, the first one as used last."""
        with self._lock:
            return [self._find(key) is not None for key in reversed(keys)][::-1]

    def plan_load(self, records: Sequence[TierRecord], transfer: Transfer) -> list[Piece]:
        """What to `read`; records that are not held are settled."""
        missing: list[int] = []
        placed: dict[int, list[Placed]] = {}
        with self._lock:
            for index in reversed(range(len(records))):
                key = records[index].key
                slot = self._find(key)
                if slot is None:
                    missing.append(index)
                    continue
                self._groups[key.group].table.pin(slot)
                item = Placed(slot, records[index], transfer, index)
                placed.setdefault(key.group, []).append(item)
        for index in missing:
            transfer.settle(index, False)
        return [piece for group in placed for piece in cut_pieces(group, placed[group])]

    def read(self, piece: Piece) -> None:
        """Fill a piece's buffers, unless its call was cancelled."""
        group, transfer = self._groups[piece.group], piece.placed[0].transfer
        found = False
        try:
            if transfer.begin():
                segment = group.segment(piece.first)
                found = segment.read(_number(piece.first), piece.buffers)
                if not found:
                    self._lose(group, piece)
        except Exception as error:  # Whatever it is, the call must end.
            transfer.fail(error)
        with self._lock:
            for item in piece.placed:
                group.table.unpin(item.slot)
        for item in piece.placed:
            item.settle(found)

    def plan_save(self, records: Sequence[TierRecord], transfer: Transfer) -> list[Piece]:
        """What to `write`; records that are held, or for which there is no room, are settled.

        May be slow, because it makes files.
        """
        by_group: dict[int, list[int]] = {}
        for index, record in enumerate(records):
            by_group.setdefault(record.key.group, []).append(index)
        pieces: list[Piece] = []
        settled: list[tuple[int, bool]] = []
        for number, indices in by_group.items():
            if number not in self._groups:
                settled += [(index, False) for index in indices]
                continue
            self._make_room(self._groups[number], len(indices))
            with self._lock:
                items = [Placed(-1, records[i], transfer, i) for i in indices]
                placed = self._place(self._groups[number], items, settled)
            pieces += cut_pieces(number, placed)
        for index, kept in settled:
            transfer.settle(index, kept)
        return pieces

    def write(self, piece: Piece) -> None:
        """Write a piece's records, then their headers; they are found from then on."""
        group = self._groups[piece.group]
        try:
            self._write(group, piece)
        except Exception as error:  # Whatever it is, the call must end.
            if not isinstance(error, OSError) or error.errno not in _NO_ROOM:
                piece.placed[0].transfer.fail(error)
            self.abandon(piece)
            return
        waiters: list[Placed] = []
        dropped: list[int] = []
        with self._lock:
            for item in reversed(piece.placed):  # What builds on others should go first.
                digest = item.record.key.digest
                write = group.table.publish(digest)
                waiters += write.waiters
                if write.dropped and (slot := group.table.forget(digest)) is not None:
                    dropped.append(slot)
        with contextlib.suppress(OSError):  # They are forgotten, and wiped before others come.
            self._wipe(group, dropped)
        for waiter in waiters:
            waiter.settle(True)

    def abandon(self, piece: Piece) -> None:
        """Give up writing a piece."""
        table = self._groups[piece.group].table
        with self._lock:
            writes = [table.abandon(item.record.key.digest) for item in piece.placed]
        for write in writes:
            for waiter in write.waiters:
                waiter.settle(False)

    def drop(self, keys: Sequence[PageKey]) -> None:
        """Forget keys, here and on the disk.

        Raises:
            OSError: The disk is at fault; the keys are forgotten until the next start.
        """
        by_group: dict[int, list[int]] = {}
        with self._lock:
            for key in keys:
                group = self._groups.get(key.group)
                if group is not None and (slot := group.table.forget(key.digest)) is not None:
                    by_group.setdefault(key.group, []).append(slot)
        for number, slots in by_group.items():
            self._wipe(self._groups[number], slots)

    def close(self) -> None:
        """Close all files; nothing may be under way."""
        for group in self._groups.values():
            group.folder.close()

    def _find(self, key: PageKey) -> int | None:
        group = self._groups.get(key.group)
        return None if group is None else group.table.find(key.digest)

    def _make_room(self, group: _Group, count: int) -> None:
        with group.growing:
            while group.table.num_free < count and (slots := group.grow()):
                with self._lock:
                    group.table.add_slots(slots)

    def _place(
        self, group: _Group, items: list[Placed], settled: list[tuple[int, bool]]
    ) -> list[Placed]:
        """Give slots to records that are neither held nor on their way."""
        table = group.table
        placed = []
        for item in items:
            digest = item.record.key.digest
            if table.find(digest) is not None:
                settled.append((item.position, True))
            elif digest in table.writing:
                table.writing[digest].waiters.append(item)
            elif (slot := table.take()) is None:
                settled.append((item.position, False))
            else:
                placed.append(item._replace(slot=slot))
                table.start(digest, slot, placed[-1])
        return placed

    def _write(self, group: _Group, piece: Piece) -> None:
        segment, first = group.segment(piece.first), _number(piece.first)
        slots = range(piece.first, piece.first + len(piece.placed))
        with self._lock:
            self._stamp += 1
            stamp = self._stamp
            wipe = not group.marked.isdisjoint(slots)
        if wipe:  # Or the old header would stand before half of the new record.
            segment.wipe(first, len(slots))
        segment.write(first, piece.buffers)
        digests = [item.record.key.digest for item in piece.placed]
        with self._lock:
            group.marked.update(slots)
        segment.mark([SlotHeader(first + i, digest, stamp) for i, digest in enumerate(digests)])

    def _wipe(self, group: _Group, slots: Sequence[int]) -> None:
        """Empty the headers of forgotten slots, and let them be used again."""
        try:
            for slot in slots:
                group.segment(slot).wipe(_number(slot))
                with self._lock:
                    group.marked.discard(slot)
        finally:
            with self._lock:
                for slot in slots:
                    group.table.retire(slot)

    def _lose(self, group: _Group, piece: Piece) -> None:
        """A file was cut short from outside."""
        with self._lock:
            for item in piece.placed:
                slot = group.table.forget(item.record.key.digest)
                if slot is not None:
                    self._num_corrupt += 1
                    group.table.retire(slot)


def _slot(segment: int, number: int) -> int:
    return segment << _NUMBER_BITS | number


def _number(slot: int) -> int:
    return slot & ((1 << _NUMBER_BITS) - 1)
