"""What the operating system says of the server's processes; absent where it does not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pegainfer_server.metrics.exposition import Exposition

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def write_process_metrics(out: Exposition, started_unix_s: float, pids: Mapping[str, int]) -> None:
    """Add start time and memory.

    Args:
        out: The scrape.
        started_unix_s: When the server started, seconds since the epoch.
        pids: Processes by what they do.
    """
    out.gauge("process_start_time_seconds", "Start, seconds since the epoch.", started_unix_s)
    found = {role: _resident_bytes(pid) for role, pid in pids.items()}
    known = {role: size for role, size in found.items() if size is not None}
    if known:
        out.gauges("process_resident_memory_bytes", "Memory in use.", "process", known)


def _resident_bytes(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return None
