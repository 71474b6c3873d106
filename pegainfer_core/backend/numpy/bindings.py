"""Activations that ops were called with before, so that a repeated call need not cut them anew."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

_BoundT = TypeVar("_BoundT")

_MAX_BINDINGS: Final = 256


class Bindings(Generic[_BoundT]):
    """Remembers what was bound for single-token calls; other calls are bound anew each time.

    Every layer of every decode step calls the same ops on the same step buffers; with one token the
    cutting costs as much as the arithmetic.
    """

    def __init__(self) -> None:
        self._bound: dict[tuple[object, ...], _BoundT] = {}

    def get(self, count: int, key: tuple[object, ...]) -> _BoundT | None:
        """What was bound for this key, for one token only."""
        return self._bound.get(key) if count == 1 else None

    def keep(self, count: int, key: tuple[object, ...], bound: _BoundT) -> _BoundT:
        """Remember, if the call was for one token."""
        if count == 1:
            if len(self._bound) >= _MAX_BINDINGS:
                self._bound.clear()
            self._bound[key] = bound
        return bound
