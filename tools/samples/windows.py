"""Draw training windows from a stream of units."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from samples.build_folder import Stream


class Windows:
    """Draws windows from a stream.

    Every window starts where a unit starts: text before which nothing stands is then never the
    inside of a conversation, so the model does not end a plain completion like a turn.
    """

    def __init__(self, stream: Stream, device: torch.device, seed: int) -> None:
        self._token_ids = torch.from_numpy(stream.token_ids.astype(np.int32)).to(device)
        self._starts = stream.starts
        self._rng = np.random.default_rng(seed)

    def draw(self, num_windows: int, num_tokens: int) -> torch.Tensor:
        """Token ids [num_windows, num_tokens]."""
        usable = self._starts[self._starts <= self._token_ids.numel() - num_tokens]
        if not len(usable):
            raise ValueError(f"the stream is shorter than one window of {num_tokens} tokens")
        starts = torch.from_numpy(self._rng.choice(usable, size=num_windows))
        offsets = starts.to(self._token_ids.device)[:, None]
        index = offsets + torch.arange(num_tokens, device=offsets.device)
        return self._token_ids[index].long()
