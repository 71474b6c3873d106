"""One request of a dataset. Knows no server and no sampling parameters."""

from __future__ import annotations

import msgspec


class BenchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to send.

    Attributes:
        prompt: A text, or token ids.
        output_tokens: How many tokens to ask for.
    """

    prompt: str | list[int]
    output_tokens: int
