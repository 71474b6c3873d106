"""Finds copies that one call can make together. Pure arithmetic on addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MAX_STRIDE: Final = (1 << 31) - 1
"""What the driver takes as the pitch of a copy in two dimensions."""


class CopyRun(NamedTuple):
    """Pieces of one size, at even distances on both sides (0 for a single piece)."""

    target: int
    source: int
    target_stride: int
    source_stride: int
    num_pieces: int


def runs(targets: Sequence[int], sources: Sequence[int]) -> Iterator[CopyRun]:
    """Parallel addresses, with neighbours at even, rising distances on both sides put together."""
    first = 0
    while first < len(targets):
        strides = _strides(targets, sources, first)
        end = first + 1
        if strides is not None:
            while _strides(targets, sources, end - 1) == strides:
                end += 1
        target_stride, source_stride = strides or (0, 0)
        yield CopyRun(targets[first], sources[first], target_stride, source_stride, end - first)
        first = end


def _strides(targets: Sequence[int], sources: Sequence[int], index: int) -> tuple[int, int] | None:
    """Distances to the next piece; None where there is none that can follow in a run."""
    if index + 1 >= len(targets):
        return None
    strides = (targets[index + 1] - targets[index], sources[index + 1] - sources[index])
    return strides if 0 < min(strides) and max(strides) <= _MAX_STRIDE else None
