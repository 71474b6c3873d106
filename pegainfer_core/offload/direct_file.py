"""Files read and written past the page cache where the file system allows it.

Addresses, offsets and sizes are the caller's business: multiples of 4096. Knows no format.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BLOCK_BYTES: Final = 4096
_O_DIRECT: Final = getattr(os, "O_DIRECT", 0)


class DirectFile:
    """An open file.

    Args:
        path: The file, which exists.
        direct: Go past the page cache.
    """

    def __init__(self, path: Path, *, direct: bool) -> None:
        self.path = path
        flags = os.O_RDWR | os.O_CLOEXEC | (_O_DIRECT if direct else 0)
        self._fd = os.open(path, flags)

    def read(self, offset: int, buffers: Sequence[memoryview]) -> bool:
        """Fill buffers with consecutive bytes; False when the file ends before."""
        wanted = sum(buffer.nbytes for buffer in buffers)
        done = os.preadv(self._fd, buffers, offset)
        while done < wanted:
            more = os.preadv(self._fd, _behind(buffers, done), offset + done)
            if more == 0:
                return False
            done += more
        return True

    def write(self, offset: int, buffers: Sequence[memoryview]) -> None:
        """Write buffers one behind the other.

        Raises:
            OSError: The disk is full, or at fault.
        """
        wanted = sum(buffer.nbytes for buffer in buffers)
        done = os.pwritev(self._fd, buffers, offset)
        while done < wanted:
            done += os.pwritev(self._fd, _behind(buffers, done), offset + done)

    def close(self) -> None:
        """Close it."""
        os.close(self._fd)


def aligned_buffer(num_bytes: int) -> memoryview:
    """Zeroed memory that starts at a page border."""
    return memoryview(mmap.mmap(-1, max(num_bytes, BLOCK_BYTES)))[:num_bytes]


def allows_direct(folder: Path) -> bool:
    """Whether files of a folder can go past the page cache: writes and reads back a block."""
    if not _O_DIRECT:
        return False
    path = folder / "probe.tmp"
    block, back = aligned_buffer(BLOCK_BYTES), aligned_buffer(BLOCK_BYTES)
    block[:5] = b"probe"
    try:
        path.write_bytes(b"")
        file = DirectFile(path, direct=True)
        try:
            file.write(0, [block])
            return file.read(0, [back]) and back == block
        finally:
            file.close()
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _behind(buffers: Sequence[memoryview], done: int) -> list[memoryview]:
    """What is left of buffers after so many bytes."""
    left = []
    for buffer in buffers:
        if done < buffer.nbytes:
            left.append(buffer[done:] if done else buffer)
        done = max(done - buffer.nbytes, 0)
    return left
