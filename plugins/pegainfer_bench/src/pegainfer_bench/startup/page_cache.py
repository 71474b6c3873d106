"""Has the files of a checkpoint in the page cache, or out of it, and says what came of it."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

_READ_BYTES: Final = 16 << 20


def weight_files(folder: Path) -> list[Path]:
    """The files of a folder, without those below it."""
    return sorted(path for path in folder.iterdir() if path.is_file() and path.stat().st_size)


def read_through(files: list[Path]) -> None:
    """Read everything once."""
    buffer = bytearray(_READ_BYTES)
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def evict(files: list[Path]) -> None:
    """Ask the kernel to drop the files' pages; those in use by someone else may stay."""
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resident_share(files: list[Path]) -> float:
    """Share of the files' pages that lie in memory."""
    resident = total = 0
    for path in files:
        pages = _resident_pages(path)
        resident += int(pages.sum())
        total += len(pages)
    return resident / total if total else 1.0


def _resident_pages(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """One value a page: whether it is in memory."""
    library = ctypes.CDLL(None, use_errno=True)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        view = np.frombuffer(mapped, np.uint8)
        size, address = view.size, int(view.ctypes.data)
        flags = np.zeros(-(-size // mmap.PAGESIZE), np.uint8)
        failed = library.mincore(
            ctypes.c_void_p(address), ctypes.c_size_t(size), ctypes.c_void_p(flags.ctypes.data)
        )
        del view  # The mapping cannot be closed under it.
    if failed:
        raise OSError(ctypes.get_errno(), "mincore failed", str(path))
    return flags & np.uint8(1)
