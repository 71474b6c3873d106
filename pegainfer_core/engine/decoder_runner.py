"""Computes a planned step: packs its rows, runs the model, chooses tokens, scores prompts.

Knows no family: a model is what has a forward, and logits of what it left.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol
from weakref import ref

import numpy as np

from pegainfer_core.backend import PageTables, StepMetadata
from pegainfer_core.engine.decoder_step import DecoderStep
from pegainfer_core.engine.step_limits import PROMPT_TILE_ROWS, max_saves, max_step_tokens
from pegainfer_core.kv import PADDING_PAGE
from pegainfer_core.sampling import ChoiceKind, ChoiceRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.backend import Backend, Batch, KvPool, StatePool, Tensor
    from pegainfer_core.contract import ServePlan, TokenLogprobs
    from pegainfer_core.engine.step import LaunchedStep, Row, StepPlan
    from pegainfer_core.sampling import PendingTokens, StepSampler


class DecoderModel(Protocol):
    """A loaded model and its step buffers."""

    def forward(self, batch: Batch, kv: KvPool) -> None:
        """Run the layers over a step's tokens: writes their KV, leaves their hidden states."""
        ...

    def logits(self, batch: Batch, first: int, count: int) -> Tensor:
        """Logits of the step's `logit_tokens` [first, first + count), after `forward`.

        Returns:
            [>= count, vocab] float32; the next call overwrites it.
        """
        ...

    def freeze(self) -> None:
        """Add no step buffers from now on."""
        ...


class _PromptToken(NamedTuple):
    """A prompt token to be scored by the logits before it."""

    row: int
    token_id: int
    top_k: int


class DecoderRunner:
    """Implements `ModelRunner`.

    Args:
        model: Its workspace holds a step of `max_step_tokens` tokens.
        backend: The model's.
        kv: The pages.
        sampler: Chooses tokens.
        plan: Limits of a step.
        states: The model's recurrent states, if it has any: steps may then restore and save some.
    """

    def __init__(
        self,
        model: DecoderModel,
        backend: Backend,
        kv: KvPool,
        sampler: StepSampler,
        plan: ServePlan,
        states: StatePool | None = None,
    ) -> None:
        self._model = model
        self._backend = backend
        self._kv = kv
        self._sampler = sampler
        self._states = states
        # One callable each: a backend that records steps knows them by their work.
        self._works = {kind: partial(self._compute, kind=kind) for kind in ChoiceKind}
        # Where masks of the choice are still to come: the forward alone, then the choice.
        self._halves = [partial(model.forward, kv=kv), partial(self._choose, kind=ChoiceKind.FULL)]
        self._unsettled: DecoderStep | None = None
        pages_a_row = kv.layout.pages_for(plan.max_model_len)
        self._tables = PageTables(plan.max_num_seqs, pages_a_row)
        self._max_rows, self._max_tokens = plan.max_num_seqs, max_step_tokens(plan)
        self._max_row_tokens = plan.max_model_len
        self._adapts = plan.capabilities.lora
        # Every recorded size twice, with adapters and without.
        self._kinds_of_steps = (False, True) if self._adapts else (False,)
        self._metadata = StepMetadata(
            max_tokens=max_step_tokens(plan),
            max_rows=plan.max_num_seqs,
            max_pages=plan.max_num_seqs * pages_a_row,
            page_tokens=plan.page_tokens,
            max_saves=max_saves(plan) if states is not None else 0,
        )

    def warm_up(self) -> None:
        """Run steps on the padding page: lays out every buffer, after which none is added.

        Then steps of every recorded size, twice, so that no request waits for a recording.
        """
        for work in self._works.values():
            for adapted in self._kinds_of_steps:
                work(self._padding_step(1, adapted))
        self._model.freeze()
        for adapted in self._kinds_of_steps:
            for size in self._backend.recorded_sizes(self._max_rows):
                self._record(partial(self._padding_step, size, adapted))
            for size in self._backend.recorded_prompts(self._max_tokens):
                self._record(partial(self._padding_prompt, size, adapted))

    def launch(self, plan: StepPlan) -> LaunchedStep:
        """Start a step; its prompt log-probabilities are computed here.

        A choice that needs masks, which depend on tokens not read yet, is launched with the next
        step or when the results are asked for, whichever comes first: the device is busy with the
        forward meanwhile.
        """
        self._settle()
        if self._states is not None and plan.restores:
            sources, targets = zip(*plan.restores, strict=True)
            self._backend.copy_states(self._states, list(sources), list(targets))
        prompt_tokens, choices = self._pack(plan)
        kind = self._sampler.pack(choices, self._metadata.choice_words)
        batch = self._backend.upload(self._metadata)
        late = self._sampler.awaits_masks
        self._backend.run(batch, self._halves[0] if late else self._works[kind])
        scores = self._score(batch, prompt_tokens)
        blocks = not self._sampler.runs_ahead
        if late:
            choose = partial(self._choose_late, batch)
            self._unsettled = DecoderStep(plan, scores, blocks=blocks, choose=choose)
            return self._unsettled
        # Last, so that what fails was not fetched: others' results, yet unread, would make room.
        pending = self._sampler.fetch() if choices else None
        return DecoderStep(plan, scores, blocks=blocks, pending=pending)

    def forget(self, request_id: int) -> None:
        """Drop what is kept of a request that gave up its slot."""
        self._sampler.forget(request_id)

    def raise_if_lost(self) -> None:
        """Ask the backend whether it still works."""
        self._backend.raise_if_lost()

    def close(self) -> None:
        """Release the backend's threads; memory goes with the last reference."""
        self._backend.close()
        # They hold this runner, and with it everything.
        self._works.clear()
        self._halves.clear()
        self._unsettled = None

    def _record(self, make_step: Callable[[], Batch]) -> None:
        for _ in range(2):
            self._backend.run(make_step(), self._works[ChoiceKind.BEST])

    def _padding_step(self, num_rows: int, adapted: bool) -> Batch:
        self._metadata.clear()
        _add_padding_rows(self._metadata, num_rows, adapted)
        return self._backend.upload(self._metadata)

    def _padding_prompt(self, num_tokens: int, adapted: bool) -> Batch:
        """In rows no longer than the context, beyond which there are neither pages nor angles."""
        self._metadata.clear()
        for row in range(self._max_rows):
            count = min(num_tokens, self._max_row_tokens)
            if count:
                pages = [PADDING_PAGE] * self._kv.layout.pages_for(count)
                adapter = 0 if adapted else -1
                self._metadata.add_row([0] * count, 0, pages, samples=row == 0, adapter=adapter)
            num_tokens -= count
        self._metadata.finish(num_decode=0)
        return self._backend.upload(self._metadata)

    def _pack(self, plan: StepPlan) -> tuple[list[_PromptToken], list[ChoiceRow]]:
        self._metadata.clear()
        self._pack_decoding(plan.rows[: plan.num_decode])
        prompt_tokens: list[_PromptToken] = []
        for index, row in enumerate(plan.rows[plan.num_decode :], plan.num_decode):
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
                adapter=sequence.adapter_slot,
            )
        for row_index, num_tokens, slot in plan.saves:
            self._metadata.add_save(row_index, num_tokens, slot)
        self._metadata.finish(plan.num_decode)
        choices = [
            ChoiceRow(seq, start + count) for seq, start, count, samples in plan.rows if samples
        ]
        return prompt_tokens, choices

    def _pack_decoding(self, rows: list[Row]) -> None:
        sequences = [row.sequence for row in rows]
        table = self._tables.row
        adapters = [seq.adapter_slot for seq in sequences] if self._adapts else None
        self._metadata.add_decode_rows(
            # An id that was not read yet is looked up by the slot.
            [-1 - seq.slot if seq.num_unread else seq.token_ids[-1] for seq in sequences],
            [row.start for row in rows],
            # Not the sequence itself, which would live on with all its ids while its slot is idle.
            [table(s.slot, (ref(s), s.num_preemptions), s.page_ids) for s in sequences],
            [seq.slot for seq in sequences],
            adapters,
        )

    def _compute(self, batch: Batch, kind: ChoiceKind) -> None:
        self._model.forward(batch, self._kv)
        if batch.num_sample_rows:
            self._choose(batch, kind)

    def _choose(self, batch: Batch, kind: ChoiceKind) -> None:
        logits = self._model.logits(batch, 0, batch.num_sample_rows)
        self._sampler.choose(batch, logits, kind)

    def _choose_late(self, batch: Batch) -> PendingTokens:
        self._sampler.put_masks()
        self._backend.run(batch, self._halves[1])
        return self._sampler.fetch()

    def _settle(self) -> None:
        """Launch what the last step left to be done."""
        step, self._unsettled = self._unsettled, None
        if step is not None:
            step.settle()

    def _score(
        self, batch: Batch, prompt_tokens: list[_PromptToken]
    ) -> dict[int, list[TokenLogprobs]]:
        """Log-probabilities by row index, tile by tile: only what was asked for is kept."""
        scores: dict[int, list[TokenLogprobs]] = {}
        first_entry = batch.metadata.num_samples
        for start in range(0, len(prompt_tokens), PROMPT_TILE_ROWS):
            tile = prompt_tokens[start : start + PROMPT_TILE_ROWS]
            rows, token_ids, top_ks = map(list, zip(*tile, strict=True))
            logits = self._model.logits(batch, first_entry + start, len(tile))
            found = self._sampler.score(logits, token_ids, top_ks)
            for row, score in zip(rows, found, strict=True):
                scores.setdefault(row, []).append(score)
        return scores


def lay_out(model: DecoderModel, backend: Backend, kv: KvPool, plan: ServePlan) -> None:
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
    _add_padding_rows(metadata, 1, plan.capabilities.lora)
    batch = backend.upload(metadata)
    model.forward(batch, kv)
    model.logits(batch, 0, batch.num_sample_rows)


def _add_padding_rows(metadata: StepMetadata, count: int, adapted: bool) -> None:
    page, adapters = np.array([PADDING_PAGE], np.int32), [0] * count if adapted else None
    metadata.add_decode_rows([0] * count, [0] * count, [page] * count, [-1] * count, adapters)
    metadata.finish(num_decode=count)


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
