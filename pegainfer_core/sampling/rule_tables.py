"""A request's masks and biases as int32 tables for a device.

The order of the tables is that in which a device applies them: allowed ids (a bit each), biases
(id, addend as float32 bits), masks (id, newest id at which it is masked, -1 for always). The first
masks are those that end with min_tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.contract import GenerateRequest
    from pegainfer_core.engine.sequence import Sequence

    IntArray = NDArray[np.int32]

__all__ = ["RuleTables"]

_ALWAYS = -1


class RuleTables:
    """The tables of one request.

    Args:
        request: Its params and end ids.
        vocab_size: Ids from here on are left out: there is no logit for them.

    Attributes:
        penalised: Whether a history is needed.
        masked: Whether a grammar's mask replaces the other masks; it changes from step to step.
        min_tokens: Until when `num_ends` masks count.
        allowed: [ceil(vocab_size / 32)] int32 bits, None where everything is allowed.
        biases: [n, 2] int32.
        masks: [n, 2] int32: `num_ends` that end with min_tokens, then those that stay.
        num_ends: Leading masks.
        sequences: Bad sequences of several ids, whose masks differ from step to step.
        fallback_id: The choice when masks leave nothing.
    """

    def __init__(self, request: GenerateRequest, vocab_size: int) -> None:
        params = request.params
        self.penalised = (
            params.repetition_penalty != 1
            or params.presence_penalty != 0
            or params.frequency_penalty != 0
        )
        self.min_tokens = params.min_tokens
        # A grammar's mask holds what the other masks say, and more than they can know here.
        self.masked = params.structured is not None
        allowed = None if self.masked else params.allowed_token_ids
        self.allowed = None if allowed is None else _bits(allowed, vocab_size)
        self.fallback_id = 0 if allowed is None else min(allowed)
        self.biases = np.empty((len(params.logit_bias), 2), np.int32)
        self.biases[:, 0] = list(params.logit_bias)
        self.biases.view(np.float32)[:, 1] = list(params.logit_bias.values())
        end_ids = [] if params.ignore_eos else request.eos_token_ids
        ends = [i for i in (*end_ids, *params.stop_token_ids) if 0 <= i < vocab_size]
        if not params.min_tokens or self.masked:
            ends = []
        sequences = [] if self.masked else params.bad_token_sequences
        bad = [s[0] for s in sequences if len(s) == 1]
        self.num_ends = len(ends)
        self.masks = np.full((len(ends) + len(bad), 2), _ALWAYS, np.int32)
        self.masks[:, 0] = [*ends, *bad]
        self.sequences = [s for s in sequences if len(s) > 1]

    @property
    def always(self) -> bool:
        """Whether there are rules in every step, not only before min_tokens."""
        return bool(
            self.penalised
            or self.masked
            or self.allowed is not None
            or len(self.biases)
            or len(self.masks) > self.num_ends
            or self.sequences
        )

    def active(self, num_generated: int) -> bool:
        """Whether there are rules after so many tokens."""
        return self.always or (num_generated < self.min_tokens and self.num_ends > 0)

    def changing_masks(self, sequence: Sequence, num_unread: int) -> IntArray:
        """Masks of the bad sequences that the ids before may have begun.

        Args:
            sequence: Whose ids are all known but the newest `num_unread`, 0 or 1.
            num_unread: Where it is 1, the device compares that id.

        Returns:
            [n, 2] int32.
        """
        num_generated = sequence.num_generated + num_unread
        found = []
        for *prefix, last in self.sequences:
            if len(prefix) > num_generated:
                continue
            known = prefix[: len(prefix) - num_unread]
            if sequence.token_ids[len(sequence.token_ids) - len(known) :] == known:
                found.append((last, prefix[-1] if num_unread else _ALWAYS))
        return np.array(found, np.int32).reshape(-1, 2)


def _bits(token_ids: list[int], vocab_size: int) -> IntArray:
    allowed = np.zeros(-(-vocab_size // 32) * 32, np.bool_)
    allowed[token_ids] = True
    return np.packbits(allowed, bitorder="little").view("<i4").astype(np.int32)
