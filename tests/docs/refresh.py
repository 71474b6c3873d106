"""Writes into the plugin pages what they show of the code: `python -m tests.docs.refresh`."""

from __future__ import annotations

import re

from tests.docs.pages import ECHO, PLUGIN_DOCS
from tests.docs.surface import rendered


def refresh() -> None:
    """Rewrite the tutorial's files and the list of the supported surface."""
    tutorial = PLUGIN_DOCS / "tutorial.md"

    def current(match: re.Match[str]) -> str:
        code = (ECHO / match[2]).read_text(encoding="utf-8")
        return f"{match[1]}{code}```"

    pattern = r"^(`([^`\n]+)`:\n\n```\w+\n).*?```$"
    text = tutorial.read_text(encoding="utf-8")
    text = re.sub(pattern, current, text, flags=re.MULTILINE | re.DOTALL)
    tutorial.write_text(text, encoding="utf-8")
    (PLUGIN_DOCS / "surface.md").write_text(rendered(), encoding="utf-8")


if __name__ == "__main__":
    refresh()
