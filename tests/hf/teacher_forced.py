"""Holds an engine, token by token along given texts, against transformers; on any backend.

The reference is a float32 run; the engine's error may be 1.5 times that of transformers' own
bfloat16 run, and the best token must be the same wherever its lead is well above that error. Knows
no family and no device: a test brings a stepper and what answers in transformers.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from pegainfer_core.backend import Backend, Tensor
    from pegainfer_core.engine import Sequence
    from tests.stepper import DecoderStepper

    #: Tensors of the engine, and what a mistake would have in their place.
    Change = tuple[list[Tensor], list[NDArray[np.float32]]]

NUM_FORCED = 4
"""Tokens at the end of each text that are decoded one by one."""

_ALLOWANCE = 1.5
_LEAD = 6
_FLOAT32_SHARE = 0.05
_LAST_CHUNK_TOKENS = 23


class Oracle(Protocol):
    """A model in transformers."""

    def last_logits(self, sequences: list[list[int]], count: int) -> torch.Tensor:
        """[sequences, count, vocab] float32 of the last positions; the texts have one length."""


class Reference(NamedTuple):
    """transformers' answers for one text, at its last `NUM_FORCED` + 1 positions.

    Attributes:
        logits: [positions, vocab] of the float32 run.
        gap: [positions] best minus second best.
        error: [positions] root mean square error of transformers' own bfloat16 run.
    """

    logits: torch.Tensor
    gap: torch.Tensor
    error: torch.Tensor


class Verdict(NamedTuple):
    """How far logits are from the reference.

    Attributes:
        error: Median over positions of the root mean square error, over the logits' deviation.
        allowed: 1.5 times the same of transformers' bfloat16 run.
        num_other: Positions where another token is best although the lead is clear.
        num_clear: Positions where the lead is clear.
    """

    error: float
    allowed: float
    num_other: int
    num_clear: int

    @property
    def passed(self) -> bool:
        return self.error <= self.allowed and not self.num_other

    @property
    def exact(self) -> bool:
        """Of a float32 run: far nearer than bfloat16 can be, and the same tokens."""
        return self.error <= _FLOAT32_SHARE * self.allowed and not self.num_other


def random_texts(lengths: Iterable[int], vocab_size: int) -> list[list[int]]:
    """Token ids, the same on every machine."""
    random = np.random.default_rng(5)
    return [random.integers(0, vocab_size, length).tolist() for length in lengths]


def ask(exact: Oracle, rounded: Oracle, texts: list[list[int]]) -> list[Reference]:
    """What a float32 and a bfloat16 run make of texts, parallel to them."""
    count = NUM_FORCED + 1
    made: dict[int, Reference] = {}
    for length in sorted({len(text) for text in texts}):
        rows = [i for i, text in enumerate(texts) if len(text) == length]
        alike = [texts[row] for row in rows]
        logits = exact.last_logits(alike, count)
        error = rms(rounded.last_logits(alike, count) - logits)
        best = logits.topk(2, dim=-1).values
        for row, *parts in zip(rows, logits, best[..., 0] - best[..., 1], error, strict=True):
            made[row] = Reference(*parts)
    return [made[row] for row in range(len(texts))]


class TeacherForced:
    """An engine, texts, and what transformers makes of them.

    Attributes:
        stepper: Runs the engine.
        texts: Token ids.
        references: Parallel to `texts`.
        std: Deviation of the float32 logits.
    """

    def __init__(
        self, stepper: DecoderStepper, texts: list[list[int]], references: list[Reference]
    ) -> None:
        self.stepper, self.texts, self.references = stepper, texts, references
        self.std = float(torch.stack([made.logits.std() for made in references]).mean())

    def compare(self, rows: Iterable[int]) -> Verdict:
        """Run some texts side by side, and judge."""
        chosen = list(rows)
        found = torch.cat(self.run(chosen))
        verdict = judge(found, [self.references[row] for row in chosen], self.std)
        print(f"{len(chosen)} rows: {verdict}")
        return verdict

    def expect_refused(self, change: Change, rows: Iterable[int]) -> None:
        """With the mistake the same comparison is far from passing, and without it passes again."""
        chosen = list(rows)
        with _overwritten(self.stepper.backend, change):
            verdict = self.compare(chosen)
        assert verdict.error > 2 * verdict.allowed, verdict
        assert self.compare(chosen).passed

    def run(self, rows: list[int]) -> list[torch.Tensor]:
        """The engine's logits of some texts, side by side: prefill, then one token a step.

        Returns:
            [positions, vocab] of each, as in `Reference`.
        """
        stepper, texts = self.stepper, [self.texts[row] for row in rows]
        states = [stepper.sequence(text[:-NUM_FORCED], NUM_FORCED + 1) for text in texts]
        found: list[list[torch.Tensor]] = [[] for _ in rows]
        self._prefill(states, found)
        for step in range(NUM_FORCED):
            for state, text in zip(states, texts, strict=True):
                state.token_ids[-1] = text[len(text) - NUM_FORCED + step]
            stepper.step([(state, 1) for state in states])
            self._take(found)
        stepper.release(*states)
        return [torch.stack(logits) for logits in found]

    def _prefill(self, states: list[Sequence], found: list[list[torch.Tensor]]) -> None:
        """As many whole prompts a step as it takes, the last of them in two chunks."""
        at = 0
        while at < len(states):
            work, budget = [], self.stepper.plan.max_prefill_tokens
            while at < len(states) and states[at].num_uncomputed <= budget:
                budget -= states[at].num_uncomputed
                work.append((states[at], states[at].num_uncomputed))
                at += 1
            last, count = work[-1]
            if count > 40:
                self.stepper.step([(last, count - _LAST_CHUNK_TOKENS)])
                work[-1] = (last, _LAST_CHUNK_TOKENS)
            self.stepper.step(work)
            self._take(found[at - len(work) : at])

    def _take(self, found: list[list[torch.Tensor]]) -> None:
        """Copy the logits that the last step left, one row for each of its sequences."""
        stepper = self.stepper
        logits = stepper.backend.to_host(stepper.model.logits_buffer, len(found)).copy()
        for row, taken in zip(torch.from_numpy(logits), found, strict=True):
            taken.append(row)


def judge(found: torch.Tensor, references: list[Reference], std: float) -> Verdict:
    """Compare logits with the reference's, [positions of all texts, vocab]."""
    expected = torch.cat([made.logits for made in references])
    logits = found.to(expected.device)
    assert torch.isfinite(logits).all()
    error = rms(logits - expected).median()
    allowed = _ALLOWANCE * torch.cat([made.error for made in references]).median()
    clear = torch.cat([made.gap for made in references]) > _LEAD * error
    other = (logits.argmax(-1) != expected.argmax(-1)) & clear
    return Verdict(float(error) / std, float(allowed) / std, int(other.sum()), int(clear.sum()))


def rms(difference: torch.Tensor) -> torch.Tensor:
    """Root mean square over the last axis."""
    return difference.square().mean(-1).sqrt()


@contextmanager
def _overwritten(backend: Backend, change: Change) -> Iterator[None]:
    """Other values in an engine's tensors, for a while; recorded steps see them too."""
    tensors, values = change
    kept = [backend.to_host(tensor, tensor.shape[0]).copy() for tensor in tensors]
    try:
        for tensor, value in zip(tensors, values, strict=True):
            _write(backend, tensor, np.broadcast_to(value, tensor.shape))
        yield
    finally:
        for tensor, value in zip(tensors, kept, strict=True):
            _write(backend, tensor, value)


def _write(backend: Backend, tensor: Tensor, values: NDArray[np.float32]) -> None:
    for index, row in enumerate(np.ascontiguousarray(values)):
        backend.overwrite(tensor, index, backend.pack(row, tensor.dtype))
