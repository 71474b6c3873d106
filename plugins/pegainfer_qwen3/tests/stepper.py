"""Drives a loaded Qwen3 by hand, with no scheduler: tests say what is computed in which step."""

from __future__ import annotations

import hashlib
import itertools
from typing import TYPE_CHECKING

import numpy as np
from pegainfer_qwen3.config import plan_qwen3
from pegainfer_qwen3.engine import load_model
from pegainfer_qwen3.runner import Qwen3Runner

from pegainfer_core.backend import NumpyBackend, StepMetadata
from pegainfer_core.contract import CoreOptions, GenerateRequest, LaunchContext, SamplingParams
from pegainfer_core.engine import Row, RowResult, Sequence, StepPlan

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from pegainfer_core.backend import Backend, Ops

GREEDY = SamplingParams(temperature=0)


def launch_context(model_dir: Path, **options: object) -> LaunchContext:
    return LaunchContext(
        model_dir=str(model_dir),
        family="qwen3",
        entry_point="pegainfer_qwen3.plugin",
        options=CoreOptions(**options),  # type: ignore[arg-type]
    )


class Stepper:
    """A runner, and sequences whose pages are handed out here."""

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
        self.context = launch_context(model_dir, **(limits | options))
        self.plan = plan_qwen3(self.context)
        self.backend = NumpyBackend() if backend is None else backend
        if ops is not None:
            self.backend.ops = ops
        loaded = load_model(self.context, self.plan, self.backend)
        self.model, self.weights, self.kv, sampler = loaded
        self.runner = Qwen3Runner(self.model, self.backend, self.kv, sampler, self.plan)
        self.runner.warm_up()
        # High ids first, so that pages do not lie in the order of their use.
        self._free = list(range(1, self.kv.num_pages))[::3] + list(range(1, self.kv.num_pages))
        self._slots = list(range(self.plan.max_num_seqs))
        self._ids = itertools.count(1)
        self._free = list(dict.fromkeys(self._free))[::-1]

    def sequence(
        self, prompt: Iterable[int], max_tokens: int = 64, params: SamplingParams = GREEDY
    ) -> Sequence:
        """A sequence with pages for its whole life."""
        ids = [int(token_id) for token_id in prompt]
        request = GenerateRequest(request_id=next(self._ids), prompt_token_ids=ids, params=params)
        pages = [self._free.pop(0) for _ in range(self.kv.layout.pages_for(len(ids) + max_tokens))]
        sequence = Sequence(request, max_tokens, page_ids=pages)
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
        self, prompts: list[Iterable[int]], num_tokens: int, chunk_tokens: int = 256
    ) -> list[list[int]]:
        """Greedy continuations of prompts that run side by side."""
        sequences = [self.sequence(prompt, num_tokens) for prompt in prompts]
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

    def logits(self, prompt: Iterable[int], chunks: Iterable[int] = ()) -> NDArray[np.float32]:
        """Logits of every token of a prompt, [n, vocab], computed in chunks of the given sizes."""
        sequence = self.sequence(prompt, 0)
        ids = sequence.token_ids
        parts, start = [], 0
        for size in [*chunks, len(ids)]:
            end = min(start + size, len(ids))
            if end > start:
                parts.append(self._chunk_logits(sequence, start, end))
            start = end
        self.release(sequence)
        return np.concatenate(parts)

    def _chunk_logits(self, sequence: Sequence, start: int, end: int) -> NDArray[np.float32]:
        metadata = StepMetadata(256, 1, len(sequence.page_ids), self.plan.page_tokens)
        count = end - start
        metadata.add_row(
            sequence.token_ids[start:end],
            start,
            sequence.page_ids,
            samples=False,
            num_prompt_logits=count,
        )
        metadata.finish(0)
        batch = self.backend.upload(metadata)
        self.model.forward(batch, self.kv)
        return self.backend.to_host(self.model.logits(batch, 0, count), count).copy()

    def weights_digest(self) -> str:
        """SHA-256 of every parameter."""
        digest = hashlib.sha256()
        weights = self.weights
        tensors = [weights.embedding, weights.norm, weights.head]
        for layer in weights.layers:
            for part in (layer.attention, layer.mlp):
                tensors += [getattr(part, name) for name in part.__dataclass_fields__]
        for tensor in tensors:
            if not isinstance(tensor, float):
                digest.update(self.backend.to_host(tensor, tensor.shape[0]).tobytes())
        return digest.hexdigest()
