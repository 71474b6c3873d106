"""Drives a loaded decoder by hand, with no scheduler: tests say what is computed in which step."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from pegainfer_core.backend import NumpyBackend, StepMetadata
from pegainfer_core.contract import CoreOptions, GenerateRequest, LaunchContext, SamplingParams
from pegainfer_core.engine import PROMPT_TILE_ROWS, Row, RowResult, Sequence, StepPlan

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from pegainfer_core.backend import Backend, KvPool, Ops
    from pegainfer_core.contract import ServePlan
    from pegainfer_core.engine import DecoderModel, DecoderRunner

GREEDY = SamplingParams(temperature=0)


class DecoderStepper(ABC):
    """A runner, and sequences whose pages are handed out here. A family says how it is loaded."""

    family: str
    model: DecoderModel
    kv: KvPool
    runner: DecoderRunner

    def __init__(
        self,
        model_dir: Path,
        ops: Ops | None = None,
        backend: Backend | None = None,
        **options: object,
    ) -> None:
        limits: dict[str, object] = {
            "max_num_seqs": 32,
            "max_prefill_tokens": 1024,
            "max_model_len": 512,
        }
        if backend is None:
            limits["backend"] = "numpy"
        self.context = self.launch_context(model_dir, **(limits | options))
        self.plan = self.make_plan()
        self.backend = NumpyBackend() if backend is None else backend
        if ops is not None:
            self.backend.ops = ops
        self.load()
        self.runner.warm_up()
        # High ids first, so that pages do not lie in the order of their use.
        self._free = list(range(1, self.kv.num_pages))[::3] + list(range(1, self.kv.num_pages))
        self._slots = list(range(self.plan.max_num_seqs))
        self._ids = itertools.count(1)
        self._free = list(dict.fromkeys(self._free))[::-1]

    @classmethod
    def launch_context(cls, model_dir: Path, **options: object) -> LaunchContext:
        return LaunchContext(
            model_dir=str(model_dir),
            family=cls.family,
            entry_point=f"pegainfer_{cls.family}.plugin",
            options=CoreOptions(**options),  # type: ignore[arg-type]
        )

    @abstractmethod
    def make_plan(self) -> ServePlan:
        """The family's plan for `context`."""

    @abstractmethod
    def load(self) -> None:
        """Set `model`, `kv` and `runner`."""

    def sequence(
        self,
        prompt: Iterable[int],
        max_tokens: int = 64,
        params: SamplingParams = GREEDY,
        adapter_slot: int = -1,
    ) -> Sequence:
        """A sequence with pages for its whole life."""
        ids = [int(token_id) for token_id in prompt]
        request = GenerateRequest(request_id=next(self._ids), prompt_token_ids=ids, params=params)
        pages = [self._free.pop(0) for _ in range(self.kv.layout.pages_for(len(ids) + max_tokens))]
        sequence = Sequence(request, max_tokens, page_ids=pages, adapter_slot=adapter_slot)
        sequence.slot = self._slots.pop()
        return sequence

    def release(self, *sequences: Sequence) -> None:
        """Take the pages back."""
        for sequence in sequences:
            self._free = sequence.page_ids + self._free
            sequence.page_ids = []
            self._slots.append(sequence.slot)
            self.runner.forget(sequence.request_id)

    def step(self, work: list[tuple[Sequence, int]]) -> list[RowResult]:
        """Compute so many further tokens of each sequence, and append what is chosen."""
        rows = []
        for sequence, count in work:
            last = count == sequence.num_uncomputed
            rows.append(Row(sequence, sequence.num_computed, count, last))
        num_decode = next((i for i, row in enumerate(rows) if row.num_tokens > 1), len(rows))
        results = self.runner.launch(StepPlan(rows, num_decode)).results()
        for row, result in zip(rows, results, strict=True):
            row.sequence.num_computed += row.num_tokens
            if result.token_id is not None:
                row.sequence.token_ids.append(result.token_id)
        return results

    def generate(
        self,
        prompts: list[Iterable[int]],
        num_tokens: int,
        chunk_tokens: int = 256,
        adapter_slots: Iterable[int] | None = None,
    ) -> list[list[int]]:
        """Greedy continuations of prompts that run side by side, each with its adapter if any."""
        slots = [-1] * len(prompts) if adapter_slots is None else list(adapter_slots)
        sequences = [
            self.sequence(prompt, num_tokens, adapter_slot=slot)
            for prompt, slot in zip(prompts, slots, strict=True)
        ]
        while any(sequence.num_generated < num_tokens for sequence in sequences):
            unfinished = [s for s in sequences if s.num_generated < num_tokens]
            decoding = [(s, 1) for s in unfinished if s.num_uncomputed == 1]
            prefilling = [s for s in unfinished if s.num_uncomputed > 1]
            work = decoding + self._chunks(prefilling, chunk_tokens)
            self.step(work)
        self.release(*sequences)
        return [sequence.token_ids[sequence.num_prompt :] for sequence in sequences]

    def _chunks(self, sequences: list[Sequence], budget: int) -> list[tuple[Sequence, int]]:
        work = []
        for sequence in sequences:
            count = min(sequence.num_uncomputed, budget)
            budget -= count
            if count:
                work.append((sequence, count))
        return work

    def logits(
        self, prompt: Iterable[int], chunks: Iterable[int] = (), adapter_slot: int = -1
    ) -> NDArray[np.float32]:
        """Logits of every token of a prompt, [n, vocab], computed in chunks of the given sizes."""
        sequence = self.sequence(prompt, 0, adapter_slot=adapter_slot)
        ids = sequence.token_ids
        parts, start = [], 0
        for size in [*chunks, len(ids)]:
            end = min(start + size, len(ids))
            if end > start:
                parts.append(self._chunk_logits(sequence, start, end))
            start = end
        self.release(sequence)
        return np.concatenate(parts)

    def row_slot(self, sequence: Sequence) -> int:
        """Slot of the rows of `logits`; -1 has the pages read anew each time."""
        return -1

    def _chunk_logits(self, sequence: Sequence, start: int, end: int) -> NDArray[np.float32]:
        count = end - start
        metadata = StepMetadata(count, 1, len(sequence.page_ids), self.plan.page_tokens)
        metadata.add_row(
            sequence.token_ids[start:end],
            start,
            sequence.page_ids,
            samples=False,
            slot=self.row_slot(sequence),
            num_prompt_logits=count,
            adapter=sequence.adapter_slot,
        )
        metadata.finish(0)
        batch = self.backend.upload(metadata)
        self.model.forward(batch, self.kv)
        tiles = []
        for first in range(0, count, PROMPT_TILE_ROWS):
            size = min(PROMPT_TILE_ROWS, count - first)
            logits = self.model.logits(batch, first, size)
            tiles.append(self.backend.to_host(logits, size).copy())
        return np.concatenate(tiles)
