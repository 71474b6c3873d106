"""Prints the sub-cases of `tests/cases/pending.toml`: tests owed by a later issue, and why.

Fails when an entry lacks its case, its issue or its reason: nothing is postponed in silence.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

PENDING = Path(__file__).resolve().parents[1] / "tests" / "cases" / "pending.toml"
KEYS = ("case", "issue", "reason")


def main(path: Path = PENDING) -> int:
    """Print the list; returns the process's exit status."""
    if not path.is_file():
        print(f"{path} is missing", file=sys.stderr)
        return 1
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("pending", [])
    faults = [fault for entry in entries for fault in find_faults(entry)]
    print(f"\nsub-cases left to later issues: {len(entries)}")
    for entry in entries:
        print("  " + "  ".join(str(entry.get(key, "?")) for key in KEYS))
    for fault in faults:
        print(f"{path.name}: {fault}", file=sys.stderr)
    return 1 if faults else 0


def find_faults(entry: dict[str, object]) -> list[str]:
    """What an entry lacks, or has too much."""
    name = entry.get("case", "an entry without a case")
    faults = [f"{name} lacks {key!r}" for key in KEYS if not entry.get(key)]
    return faults + [f"{name} has an unknown key {key!r}" for key in entry.keys() - set(KEYS)]


if __name__ == "__main__":
    sys.exit(main())
