"""Decides, step by step, who shares out products: OpenBLAS, or a team of our own.

Knows token counts and durations, no threads. On cores of its own OpenBLAS is an eighth faster with
few tokens; on cores that others use too it is several times slower (see `thread_team`).
"""

from __future__ import annotations

from typing import Final

MAX_LIBRARY_TOKENS: Final = 3
"""Most tokens in a step that may be left to the library: its products are then with vectors."""

_CROWDED: Final = 1.5
_FORGET: Final = 1.005
_FIRST_PAUSE: Final = 16
_LONGEST_PAUSE: Final = 512


class ProductMode:
    """Follows the durations of steps with few tokens.

    The first such step goes to the team and the second to the library. Whenever the library takes
    half as long again as the best step lately, it pauses for some steps; each failure in a row
    doubles the pause.
    """

    def __init__(self) -> None:
        self._best_s: dict[int, float] = {}
        self._pause = _FIRST_PAUSE
        self._pausing = 0
        self._num_tokens = 0
        self._by_team = True

    def choose(self, num_tokens: int) -> bool:
        """Whether the team is to serve the step that begins now."""
        self._num_tokens = num_tokens
        few = num_tokens <= MAX_LIBRARY_TOKENS
        self._by_team = not few or self._pausing > 0 or num_tokens not in self._best_s
        return self._by_team

    def observe(self, duration_s: float) -> None:
        """Learn how long that step took."""
        if self._num_tokens > MAX_LIBRARY_TOKENS:
            return
        # Contexts grow, and the best of long ago is out of reach.
        best_s = self._best_s.get(self._num_tokens, duration_s) * _FORGET
        self._best_s[self._num_tokens] = min(best_s, duration_s)
        if self._by_team:
            self._pausing = max(self._pausing - 1, 0)
        elif duration_s > _CROWDED * best_s:
            self._pausing = self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        else:
            self._pause = _FIRST_PAUSE
