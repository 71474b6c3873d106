"""Writes into the plugin pages what they show of the code: `python -m tests.docs.refresh`."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.pages import PLUGIN_DOCS, SHOWN
from tests.docs.surface import rendered


def refresh() -> None:
    """Rewrite the examples' files and the list of the supported surface."""
    for page, example in SHOWN.items():
        text = page.read_text(encoding="utf-8")
        page.write_text(_with_current_files(text, example), encoding="utf-8")
    (PLUGIN_DOCS / "surface.md").write_text(rendered(), encoding="utf-8")


def _with_current_files(text: str, example: Path) -> str:
    def current(match: re.Match[str]) -> str:
        code = (example / match[2]).read_text(encoding="utf-8")
        return f"{match[1]}{code}```"

    pattern = r"^(`([^`\n]+)`:\n\n```\w+\n).*?```$"
    return re.sub(pattern, current, text, flags=re.MULTILINE | re.DOTALL)


if __name__ == "__main__":
    refresh()
