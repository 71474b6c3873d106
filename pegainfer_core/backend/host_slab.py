"""Host memory in large pieces, straight from the system. Knows nothing of devices."""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress

from pegainfer_core.backend.page_mover import HostSlab


def map_slab(num_bytes: int, *, populate: bool = False) -> HostSlab:
    """Zeroed memory that the system hands out as it is used, or at once.

    It is given back when nobody holds a view of it any more.

    Args:
        num_bytes: Its size.
        populate: Whether to take it from the system now, in huge pages where it has them.

    Raises:
        MemoryError: The system has not that much left.
    """
    try:
        owner = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(
            f"{num_bytes / 2**20:,.0f} MiB of host memory cannot be had: {error}"
        ) from error
    address = ctypes.addressof(ctypes.c_char.from_buffer(owner))
    if populate:
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # no huge pages here; small ones do
                owner.madvise(mmap.MADV_HUGEPAGE)
        # Lets other threads run meanwhile; whoever pins it then holds its locks for less time.
        ctypes.memset(address, 0, num_bytes)
    return HostSlab(address, memoryview(owner))
