"""Line breaks that may belong to a marker which follows."""

from typing import Final

__all__ = ["split_line_breaks"]

# Formats put one or two before a marker; a model that repeats itself must not be held up.
_MAX_HELD: Final = 8


def split_line_breaks(text: str) -> tuple[str, str]:
    """A text before its last line breaks, and these; of very many, the last eight."""
    num_held = min(len(text) - len(text.rstrip("\n")), _MAX_HELD)
    end = len(text) - num_held
    return text[:end], text[end:]
