"""Reasoning as clients of the Responses API carry it back without looking inside.

It is sealed against accidents, not against people: they are told the text in the open, too.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

_MARK: Final = "pegainfer-reasoning:"


def seal(text: str) -> str:
    """The text as opaque characters."""
    # Surrogates cannot come from a tokenizer, but nothing here depends on that.
    return _MARK + base64.b64encode(text.encode("utf-8", "replace")).decode()


def unseal(sealed: str) -> str | None:
    """The text that was sealed here; None for what others made."""
    if not sealed.startswith(_MARK):
        return None
    try:
        return base64.b64decode(sealed.removeprefix(_MARK), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
