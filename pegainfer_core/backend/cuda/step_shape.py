"""Which steps are recorded: a few shapes that others are filled up to. Pure host arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pegainfer_core.backend.metadata import StepMetadata

DECODE_ROWS: Final = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256)
PROMPT_TOKENS: Final = (16, 32, 64, 128, 256, 512)
"""Longer prompts keep the device busy for longer than their launches take."""

MAX_PROMPT_ROWS: Final = 8
_PROMPT_SAMPLES: Final = (1, MAX_PROMPT_ROWS)


class StepShape(NamedTuple):
    """What a recorded step computes, whatever it is filled up with.

    Attributes:
        num_tokens: Tokens.
        num_decode: Decoding rows: all tokens, or none of them.
        num_samples: Rows of logits that choose a token.
        adapted: Whether what adapters add is computed: those steps have recordings of their own.
    """

    num_tokens: int
    num_decode: int
    num_samples: int
    adapted: bool = False


def decode_sizes(max_rows: int) -> list[int]:
    """Recorded numbers of decoding rows, the largest of them the limit itself."""
    return [size for size in DECODE_ROWS if size < max_rows] + [max_rows]


def prompt_sizes(max_tokens: int) -> list[int]:
    """Recorded numbers of prompt tokens."""
    return [size for size in PROMPT_TOKENS if size <= max_tokens]


def step_shape(metadata: StepMetadata) -> StepShape | None:
    """The smallest recorded shape that holds a step; None if it is one of a kind.

    Recorded are steps of decoding rows alone, and those of a few short prompts alone.
    """
    if metadata.num_logits != metadata.num_samples:
        return None
    adapted = metadata.num_adapted > 0
    if metadata.num_decode == metadata.num_rows == metadata.num_samples:
        size = _next(decode_sizes(len(metadata.context_lens)), metadata.num_rows)
        return StepShape(size, size, size, adapted) if size else None
    if metadata.num_decode or metadata.num_rows > MAX_PROMPT_ROWS:
        return None
    size = _next(prompt_sizes(len(metadata.token_ids)), metadata.num_tokens)
    samples = _next(_PROMPT_SAMPLES, metadata.num_samples)
    if not size or not samples or samples > len(metadata.context_lens):
        return None
    return StepShape(size, 0, samples, adapted)


def _next(sizes: list[int] | tuple[int, ...], count: int) -> int:
    """The first size that holds a count, 0 if none does."""
    return next((size for size in sizes if size >= count), 0)
