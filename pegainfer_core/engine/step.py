"""What a scheduler asks a model runner to compute in one step, and what it gets back."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from pegainfer_core.contract import TokenLogprobs
    from pegainfer_core.engine.sequence import Sequence


class Row(NamedTuple):
    """One request's share of a step.

    Computes tokens [start, start + num_tokens) of `sequence.token_ids`, whose KV pages are already
    in `sequence.page_ids`. With `samples`, the logits of the last of them choose the next token.

    The id of a decoding row's token may be unknown: `start` is then `len(sequence.token_ids)`, and
    the id is what a step that was launched before chose for the sequence's slot.
    """

    sequence: Sequence
    start: int
    num_tokens: int
    samples: bool


class StateRestore(NamedTuple):
    """A recurrent state to copy before a step, from one slot to another."""

    source: int
    target: int


class StateSave(NamedTuple):
    """A recurrent state to copy in a step: that behind the first `num_tokens` tokens of a row."""

    row_index: int
    num_tokens: int
    slot: int


class StepPlan(NamedTuple):
    """Rows of one step: decoding rows (one token each) first, then prefill chunks.

    Recurrent states are restored before its first token; saves are in the order of their tokens.
    """

    rows: list[Row]
    num_decode: int
    restores: tuple[StateRestore, ...] = ()
    saves: tuple[StateSave, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Tokens computed in this step."""
        return sum(row.num_tokens for row in self.rows)


class RowResult(NamedTuple):
    """What one row produced.

    Attributes:
        token_id: The chosen next token, None when the row did not sample; negative when it could
            not, because its logits are not numbers.
        logprobs: Of that token, when its request asked for them.
        prompt_logprobs: Of the prompt tokens at positions start + 1 .. start + num_tokens that
            exist, when its request asked for them (chunk by chunk, in order).
    """

    token_id: int | None
    logprobs: TokenLogprobs | None = None
    prompt_logprobs: list[TokenLogprobs] | None = None


class LaunchedStep(Protocol):
    """A step under way, or done.

    Attributes:
        blocks: Whether its results must be read before another step is launched.
    """

    blocks: bool

    def results(self) -> list[RowResult]:
        """Wait for the step; results are parallel to its plan's rows. Called once."""
        ...


class DoneStep:
    """A step that was computed while it was launched: for runners that do not run ahead."""

    blocks = True

    def __init__(self, results: list[RowResult]) -> None:
        self._results = results

    def results(self) -> list[RowResult]:
        """At once."""
        return self._results


class ModelRunner(Protocol):
    """Runs the model for one plan at a time, on the thread that built it."""

    def launch(self, plan: StepPlan) -> LaunchedStep:
        """Start a step: write KV, choose tokens. Steps take effect in the order of their launches.

        Raises:
            DeviceFault: The device cannot be used any more.
            Exception: The step cannot be computed; other steps can.
        """
        ...

    def forget(self, request_id: int) -> None:
        """Drop what is kept of a request that gave up its slot."""
        ...

    def raise_if_lost(self) -> None:
        """Ask, after a step failed, whether other steps can be computed.

        Raises:
            DeviceFault: The device cannot be used any more.
        """
        ...

    def close(self) -> None:
        """Release memory and threads."""
        ...
