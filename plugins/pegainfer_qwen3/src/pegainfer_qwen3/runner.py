"""Computes a planned step: packs its rows, runs the model, chooses tokens, scores prompts."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pegainfer_core.backend import StepMetadata
from pegainfer_core.engine import DoneStep, RowResult
from pegainfer_core.kv import PADDING_PAGE
from pegainfer_core.sampling import SampledToken, row_logprobs

if TYPE_CHECKING:
    from pegainfer_core.backend import Backend, Batch, KvPool
    from pegainfer_core.contract import ServePlan, TokenLogprobs
    from pegainfer_core.engine import LaunchedStep, Row, StepPlan
    from pegainfer_core.sampling import Sampler
    from pegainfer_qwen3.model import Qwen3Model

PROMPT_TILE_ROWS: Final = 256
"""Most prompt tokens whose logits are held at once: a vocabulary wide, they are large."""


class _PromptToken(NamedTuple):
    """A prompt token to be scored by the logits before it."""

    row: int
    token_id: int
    top_k: int


class Qwen3Runner:
    """Implements `pegainfer_core.engine.ModelRunner`.

    Args:
        model: Its workspace holds a step of `max_num_seqs` + `max_prefill_tokens` tokens.
        backend: The model's.
        kv: The pages.
        sampler: Chooses tokens.
        plan: Limits of a step.
    """

    def __init__(
        self, model: Qwen3Model, backend: Backend, kv: KvPool, sampler: Sampler, plan: ServePlan
    ) -> None:
        self._model = model
        self._backend = backend
        self._kv = kv
        self._sampler = sampler
        pages_a_row = kv.layout.pages_for(plan.max_model_len)
        self._metadata = StepMetadata(
            max_tokens=max_step_tokens(plan),
            max_rows=plan.max_num_seqs,
            max_pages=plan.max_num_seqs * pages_a_row,
            page_tokens=plan.page_tokens,
        )

    def warm_up(self) -> None:
        """Run one token on the padding page: lays out every buffer, after which none is added."""
        self._metadata.clear()
        _add_padding_rows(self._metadata)
        self._compute(self._backend.upload(self._metadata))
        self._model.freeze()

    def launch(self, plan: StepPlan) -> LaunchedStep:
        """Compute a step."""
        prompt_tokens = self._pack(plan)
        batch = self._backend.upload(self._metadata)
        self._backend.run(batch, self._compute)
        sampled = iter(self._sample(plan))
        scores = self._score(batch, prompt_tokens)
        results = []
        for index, row in enumerate(plan.rows):
            chosen = next(sampled) if row.samples else None
            results.append(
                RowResult(
                    token_id=chosen.token_id if chosen else None,
                    logprobs=chosen.logprobs if chosen else None,
                    prompt_logprobs=scores.get(index),
                )
            )
        return DoneStep(results)

    def close(self) -> None:
        """Release the backend's threads; memory goes with the last reference."""
        self._backend.close()

    def _pack(self, plan: StepPlan) -> list[_PromptToken]:
        self._metadata.clear()
        prompt_tokens: list[_PromptToken] = []
        for index, row in enumerate(plan.rows):
            sequence, start, end = row.sequence, row.start, row.start + row.num_tokens
            scored = _prompt_tokens(index, row)
            prompt_tokens += scored
            self._metadata.add_row(
                sequence.token_ids[start:end],
                start,
                sequence.page_ids,
                samples=row.samples,
                slot=sequence.slot,
                num_prompt_logits=len(scored),
            )
        self._metadata.finish(plan.num_decode)
        return prompt_tokens

    def _compute(self, batch: Batch) -> None:
        self._model.forward(batch, self._kv)
        if batch.num_sample_rows:
            self._model.choose(batch)

    def _sample(self, plan: StepPlan) -> list[SampledToken]:
        """Where the best logit decides, only that is read back; else whole rows of logits."""
        sequences = [row.sequence for row in plan.rows if row.samples]
        if not sequences:
            return []
        if self._sampler.takes_argmax(sequences):
            best = self._backend.to_host(self._model.best, len(sequences))
            if np.isfinite(best[:, 0]).all():
                return [SampledToken(int(token_id), None) for token_id in best[:, 1].tolist()]
        logits = self._backend.to_host(self._model.logits_buffer, len(sequences))
        return self._sampler.sample(logits, sequences)

    def _score(
        self, batch: Batch, prompt_tokens: list[_PromptToken]
    ) -> dict[int, list[TokenLogprobs]]:
        """Log-probabilities by row index, tile by tile: only what was asked for is kept."""
        scores: dict[int, list[TokenLogprobs]] = {}
        first_entry = batch.metadata.num_samples
        for start in range(0, len(prompt_tokens), PROMPT_TILE_ROWS):
            tile = prompt_tokens[start : start + PROMPT_TILE_ROWS]
            logits = self._model.logits(batch, first_entry + start, len(tile))
            values = self._backend.to_host(logits, len(tile))
            done = 0
            for (row, top_k), group in groupby(tile, lambda token: (token.row, token.top_k)):
                ids = [token.token_id for token in group]
                found = row_logprobs(values[done : done + len(ids)], ids, top_k)
                scores.setdefault(row, []).extend(found)
                done += len(ids)
        return scores


def lay_out(model: Qwen3Model, backend: Backend, kv: KvPool, plan: ServePlan) -> None:
    """Let a model take all the step buffers it will ever need.

    Args:
        model: Not frozen yet.
        backend: The model's.
        kv: May hold the padding page alone.
        plan: Limits of a step.
    """
    metadata = StepMetadata(
        max_tokens=max_step_tokens(plan),
        max_rows=plan.max_num_seqs,
        max_pages=plan.max_num_seqs,
        page_tokens=plan.page_tokens,
    )
    _add_padding_rows(metadata)
    batch = backend.upload(metadata)
    model.forward(batch, kv)
    model.choose(batch)


def _add_padding_rows(metadata: StepMetadata) -> None:
    metadata.add_row([0], 0, [PADDING_PAGE], samples=True)
    metadata.finish(num_decode=1)


def max_step_tokens(plan: ServePlan) -> int:
    """Most tokens in one step: a token of every decoding row, and the prefill budget."""
    return plan.max_num_seqs + plan.max_prefill_tokens


def max_logit_rows(plan: ServePlan) -> int:
    """Most rows of logits held at once."""
    return max(plan.max_num_seqs, PROMPT_TILE_ROWS)


def _prompt_tokens(index: int, row: Row) -> list[_PromptToken]:
    """The prompt tokens that this row's logits score: those behind its own, inside the prompt."""
    sequence = row.sequence
    top_k = sequence.request.params.prompt_logprobs
    if sequence.prompt_logprobs is None or top_k is None:
        return []
    end = min(row.start + row.num_tokens + 1, sequence.num_prompt)
    return [
        _PromptToken(index, token_id, top_k) for token_id in sequence.token_ids[row.start + 1 : end]
    ]
