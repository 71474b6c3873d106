"""Choosing tokens as part of a step: what a runner calls, whatever backend its logits lie on.

A runner packs the rows that choose before it uploads a step, lets the choice be part of the step's
work, and fetches the tokens after the step; the next step may be packed and run before that.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pegainfer_core.backend import Batch, Tensor
    from pegainfer_core.contract import TokenLogprobs
    from pegainfer_core.engine.sequence import Sequence
    from pegainfer_core.sampling.sampler import SampledToken

__all__ = ["ChoiceKind", "ChoiceRow", "PendingTokens", "StepSampler"]


class ChoiceRow(NamedTuple):
    """A row that chooses a token.

    Attributes:
        sequence: Its request; the ids of tokens that steps in flight chose may be missing.
        position: Index of the chosen token in prompt + output: the row's `start + num_tokens`.
    """

    sequence: Sequence
    position: int

    @property
    def num_generated(self) -> int:
        """Tokens generated before this one, those in flight included."""
        return self.position - self.sequence.num_prompt


class ChoiceKind(enum.IntEnum):
    """How much work a step's choice is; recorded steps differ by it. Later ones do all of it."""

    BEST = 0
    """Every row takes its best logit."""
    DRAW = 1
    """Rows may draw, with any filters."""
    FULL = 2
    """Rows may have masks, bias and penalties, and report log-probabilities."""


class PendingTokens(Protocol):
    """Tokens of a step that was submitted."""

    def tokens(self) -> list[SampledToken]:
        """Wait for them; one a packed row. Called once."""
        ...


class StepSampler(ABC):
    """Chooses the tokens of steps; lives on the thread of its backend.

    The order of calls for a step: `pack`, the upload of the metadata with the words, `choose`
    inside the step's work, `fetch` after it. All but the waiting is done in submission order.
    Where `awaits_masks` is true after `pack`, `put_masks` comes between the model's forward and
    `choose`, as late as the next step's `pack` allows.

    Attributes:
        runs_ahead: Whether a step may be packed before the tokens of the one before are read.
        next_ids: Device address of [slots] int32: the token last chosen for each slot; None where
            `runs_ahead` is false.
    """

    runs_ahead: bool
    next_ids: int | None

    @abstractmethod
    def pack(self, rows: list[ChoiceRow], words: NDArray[np.int32]) -> ChoiceKind:
        """Describe the choices of a step.

        Args:
            rows: In the order of the step's sampling tokens.
            words: [>= len(rows), CHOICE_WORDS], overwritten on the first `len(rows)`. A row of
                zeros is a padding row: it takes its best logit and leaves `next_ids` alone.

        Returns:
            The least work that covers all rows.

        Raises:
            ValueError: A row needs ids that were not read.
        """

    @abstractmethod
    def choose(self, batch: Batch, logits: Tensor, kind: ChoiceKind) -> None:
        """The step's choice: only device work, the same for equal `num_sample_rows` and `kind`.

        Args:
            batch: The step, uploaded with its words.
            logits: [>= num_sample_rows, vocab] float32; left as they are.
            kind: As `pack` answered, or a later one.
        """

    @abstractmethod
    def fetch(self) -> PendingTokens:
        """Start to read the tokens of the step that was packed last, after its work."""

    @property
    def awaits_masks(self) -> bool:
        """Whether rows packed last have masks that `put_masks` must bring before `choose`."""
        return False

    def put_masks(self) -> None:  # noqa: B027 - nothing to bring
        """Bring those masks to where `choose` reads them; waits until they are known.

        The masks of a step depend on the tokens of the step before it, which must have been read
        and handed over.
        """

    @abstractmethod
    def score(self, logits: Tensor, token_ids: list[int], top_ks: list[int]) -> list[TokenLogprobs]:
        """Log-probabilities of given tokens, after the work before; waits for them.

        Args:
            logits: [>= n, vocab] float32; left as they are.
            token_ids: n ids.
            top_ks: How many most likely tokens to report beside each.
        """

    @abstractmethod
    def forget(self, request_id: int) -> None:
        """Drop what is kept of an ended request; unknown ids are ignored."""
