"""Memory of a process and all that belong to its session, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec


class ProcessMemory(msgspec.Struct, frozen=True, kw_only=True):
    """One process.

    Attributes:
        name: Of the process.
        pid: Its id.
        pss_mib: Proportional set size: pages shared with others count by share.
        rss_mib: Resident set size.
    """

    name: str
    pid: int
    pss_mib: float
    rss_mib: float


def session_memory(session: int) -> list[ProcessMemory]:
    """Every living process of a session, its leader first; empty without Linux's /proc."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        try:
            if os.getsid(pid) == session:
                found.append(_memory(entry, pid))
        except (OSError, KeyError):
            continue  # It has just ended.
    return sorted(found, key=lambda process: (process.pid != session, process.pid))


def _memory(entry: Path, pid: int) -> ProcessMemory:
    sizes = {}
    for line in (entry / "smaps_rollup").read_text().splitlines()[1:]:
        name, _, value = line.partition(":")
        sizes[name] = int(value.split()[0]) / 1024
    name = (entry / "comm").read_text().strip()
    return ProcessMemory(name=name, pid=pid, pss_mib=sizes["Pss"], rss_mib=sizes["Rss"])
