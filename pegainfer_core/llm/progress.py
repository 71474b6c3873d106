"""The progress bar of a batch: answers done, and tokens per second."""

from __future__ import annotations

import time

from tqdm import tqdm


class ProgressBar:
    """A bar on stderr, or nothing.

    Args:
        num_prompts: Answers to wait for.
        shown: Whether to draw it.
    """

    def __init__(self, num_prompts: int, shown: bool) -> None:
        self._start_s = time.monotonic()
        self._num_tokens = 0
        self._bar = tqdm(total=num_prompts, desc="Generating", unit="prompt", disable=not shown)

    def advance(self, num_tokens: int) -> None:
        """Count a finished answer of so many tokens."""
        self._num_tokens += num_tokens
        elapsed_s = time.monotonic() - self._start_s
        if elapsed_s > 0:
            self._bar.set_postfix_str(f"{self._num_tokens / elapsed_s:.1f} tok/s", refresh=False)
        self._bar.update()

    def close(self) -> None:
        """Draw the last state."""
        self._bar.close()
