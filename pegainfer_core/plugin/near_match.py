"""Says what a misspelt name may have meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def near_match(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, None when nothing is close."""
    import difflib  # Only needed for a message; discovery runs on a budget of milliseconds.

    return next(iter(difflib.get_close_matches(name, sorted(known), n=1)), None)
