"""Reads the project's pages: fenced blocks, headings, links. Knows no page."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PLUGIN_DOCS = ROOT / "docs" / "plugins"
ECHO = ROOT / "docs" / "examples" / "pegainfer_echo"
SHELF = ROOT / "docs" / "examples" / "pegainfer_shelf"

SHOWN = {PLUGIN_DOCS / "tutorial.md": ECHO, PLUGIN_DOCS / "tiers.md": SHELF}
"""Pages, and the example each shows file for file."""

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^`([^`\n]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a page."""

    page: Path
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {self.text.strip().splitlines()[0][:60]}"


def pages() -> list[Path]:
    """Every page of the project, wherever it lies."""
    docs = [p for p in (ROOT / "docs").rglob("*.md") if ".venv" not in p.parts]
    return [*sorted(ROOT.glob("*.md")), *sorted(docs)]


def blocks(page: Path, language: str) -> list[Block]:
    """The fenced blocks of one language."""
    found = _FENCE.findall(page.read_text(encoding="utf-8"))
    return [Block(page, name, text) for name, text in found if name == language]


def files(page: Path) -> dict[str, str]:
    """Blocks that are files: a line "`path`:" stands before them."""
    return dict(_FILE.findall(page.read_text(encoding="utf-8")))


def headings(page: Path) -> list[str]:
    """The text of every heading, without backquotes."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return [
        line.lstrip("#").strip().replace("`", "") for line in text.splitlines() if line[:1] == "#"
    ]


def commands(text: str) -> list[list[str]]:
    """The commands of a shell block as words, comments stripped and continued lines joined."""
    lines = text.replace("\\\n", " ").splitlines()
    split = [shlex.split(line, comments=True) for line in lines]
    parts: list[list[str]] = []
    for words in split:
        while "&&" in words:
            cut = words.index("&&")
            parts.append(words[:cut])
            words = words[cut + 1 :]
        if words:
            parts.append(words)
    return parts
