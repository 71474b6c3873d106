"""Shows what the resident memory of processes consists of: `footprint.py PID [PID ...]`.

Proportional set size (PSS, shared pages divided among their users) by mapped file, largest first.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

_HEADER = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+\s*(.*)$")
_LEAST_MIB = 2.0


def mapped_kib(pid: int) -> Counter[str]:
    """PSS in KiB by file name; memory without a file goes by its kind."""
    sizes: Counter[str] = Counter()
    name = ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        header = _HEADER.match(line)
        if header:
            name = Path(header[1]).name if header[1].startswith("/") else header[1] or "anonymous"
        elif line.startswith("Pss:"):
            sizes[name] += int(line.split()[1])
    return sizes


def main() -> int:
    for pid in map(int, sys.argv[1:]):
        sizes = mapped_kib(pid)
        print(f"process {pid}: {sum(sizes.values()) / 1024:.0f} MiB")
        for name, kib in sizes.most_common():
            if kib / 1024 >= _LEAST_MIB:
                print(f"  {kib / 1024:7.1f}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
