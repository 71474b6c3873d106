"""Cuts calls into pieces that one system call moves. Knows slots by number only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pegainfer_core.kv import TierRecord
    from pegainfer_core.offload.transfer import Transfer

PIECE_BYTES: Final = 8 << 20
"""Pieces are about so large: long enough for the disk, short enough to occupy several threads."""

_MAX_RECORDS: Final = 512
"""The kernel takes 1024 buffers at once."""


class Placed(NamedTuple):
    """A record of a call, its position there, and the slot it is read from or written to."""

    slot: int
    record: TierRecord
    transfer: Transfer
    position: int

    def settle(self, found: bool) -> None:
        """Tell the call what became of it."""
        self.transfer.settle(self.position, found)


class Piece(NamedTuple):
    """Records of one group in consecutive slots, in their order."""

    group: int
    placed: list[Placed]

    @property
    def first(self) -> int:
        """The first slot."""
        return self.placed[0].slot

    @property
    def buffers(self) -> list[memoryview]:
        """The records' buffers."""
        return [placed.record.buffer for placed in self.placed]


def cut_pieces(group: int, placed: Iterable[Placed]) -> list[Piece]:
    """Runs of consecutive slots, none longer than a piece should be."""
    pieces: list[Piece] = []
    room_bytes = 0
    for item in sorted(placed, key=lambda item: item.slot):
        last = pieces[-1].placed if pieces else []
        follows = bool(last) and item.slot == last[-1].slot + 1
        room_bytes -= item.record.buffer.nbytes
        if not follows or room_bytes < 0 or len(last) == _MAX_RECORDS:
            pieces.append(Piece(group, []))
            room_bytes = PIECE_BYTES - item.record.buffer.nbytes
        pieces[-1].placed.append(item)
    return pieces
