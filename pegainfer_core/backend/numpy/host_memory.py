"""How much memory the host has and can still give; knows the files of Linux, and no models.

A control group (a container, a service) may hold less than the machine.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["HostMemory", "host_memory"]

_MEMINFO: Final = Path("/proc/meminfo")
#: Limit, usage and statistics of the process's own group, as containers see it: version 2, then 1.
_GROUPS: Final = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
)


class HostMemory(NamedTuple):
    """Bytes this process may hold at most, and those still free for it."""

    total_bytes: int
    free_bytes: int


def host_memory() -> HostMemory:
    """Look now.

    Where the system does not tell what is free, all of its memory counts as free.
    """
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free_kib = _named(_MEMINFO, "MemAvailable:")
    found = [HostMemory(total, total if free_kib is None else free_kib * 1024)]
    found += [group for folder, *names in _GROUPS if (group := _group(folder, *names))]
    return HostMemory(min(each.total_bytes for each in found), min(m.free_bytes for m in found))


def _group(folder: Path, limit_name: str, usage_name: str) -> HostMemory | None:
    """The group's share, None when there is no such group or it has no limit."""
    limit, usage = _number(folder / limit_name), _number(folder / usage_name)
    if limit is None or usage is None:
        return None
    # Read-ahead and other files' pages count as used, but make way.
    files = _named(folder / "memory.stat", "inactive_file") or 0
    return HostMemory(limit, max(limit - usage + files, 0))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # "max" is no number.
        return None


def _named(path: Path, name: str) -> int | None:
    """The number behind a name at the beginning of a line."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    words = (line.split() for line in lines)
    return next((int(word[1]) for word in words if word[:1] == [name]), None)
