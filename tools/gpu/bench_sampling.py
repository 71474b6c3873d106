"""Times the choice of tokens on the GPU: `bench_sampling.py [--split]`.

Prints microseconds of a recorded choice (events around replays) by setting, for 1, 64 and 256 rows
of a Qwen3 vocabulary, and the host's packing; with `--split` also what each launch takes.
Logits are normal; they are as warm as the product before would leave them.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from pegainfer_core.backend import DType
from pegainfer_core.backend.cuda import CudaBackend
from pegainfer_core.backend.cuda.arrays import address
from pegainfer_core.backend.cuda.device import Event
from pegainfer_core.backend.cuda.sampling import CudaChoice
from pegainfer_core.contract import GenerateRequest, SamplingParams
from pegainfer_core.engine import Sequence
from pegainfer_core.sampling import ChoiceKind, ChoiceRow, DeviceStepSampler

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.backend import Tensor
    from pegainfer_core.kernels import KernelSpec

VOCAB = 151936
ROWS = (1, 64, 256)
REPLAYS = 50
SETTINGS = {
    "greedy": SamplingParams(temperature=0),
    "temperature": SamplingParams(temperature=0.8),
    "temperature, min_p 0.05": SamplingParams(temperature=0.8, min_p=0.05),
    "temperature, top_k 50": SamplingParams(temperature=0.8, top_k=50),
    "temperature, top_k 50, top_p 0.9": SamplingParams(temperature=0.8, top_k=50, top_p=0.9),
    "temperature, top_k 1000, top_p 0.9": SamplingParams(temperature=0.8, top_k=1000, top_p=0.9),
    "temperature, top_p 0.9": SamplingParams(temperature=0.8, top_p=0.9),
    "greedy, penalties": SamplingParams(temperature=0, repetition_penalty=1.1),
    "greedy, logprobs 5": SamplingParams(temperature=0, logprobs=5),
    "greedy, logprobs 20": SamplingParams(temperature=0, logprobs=20),
    "whole rows (top_k 50000, top_p 0.9)": SamplingParams(top_k=50000, top_p=0.9),
}


class PartialChoice(CudaChoice):
    """Stops after some launches, to see what each takes."""

    num_launches = 99
    names: list[str]

    def _launch(self, spec: KernelSpec, grid: tuple[int, int], *arguments: float) -> None:
        self.names.append(spec.function)
        if len(self.names) <= self.num_launches:
            super()._launch(spec, grid, *arguments)


class Bench:
    """A choice of up to so many rows."""

    def __init__(self, max_rows: int) -> None:
        self.backend = CudaBackend()
        self.choice = PartialChoice(
            self.backend.device, self.backend.library, VOCAB, max_rows, max_rows
        )
        self.choice.names = []
        self.random = np.random.default_rng()
        drawn = self.random.standard_normal((max_rows, VOCAB), np.float32)
        self.logits: Tensor = self.backend.adopt(drawn * np.float32(2), DType.FLOAT32)

    def time(self, params: SamplingParams, num_rows: int, *, split: bool) -> str:
        """Microseconds of one choice and of its packing."""
        sampler = DeviceStepSampler(self.choice, 0)
        sequences = [
            Sequence(
                GenerateRequest(request_id=i, prompt_token_ids=[1, 2, 3], params=params),
                100,
                slot=i,
            )
            for i in range(num_rows)
        ]
        words = np.zeros((num_rows, self.choice.num_words), np.int32)
        kind = sampler.pack([ChoiceRow(s, 3) for s in sequences], words)
        pack_us = self._pack_us(sampler, sequences, words)
        self.words = self.backend.adopt(words.view(np.float32), DType.FLOAT32)
        whole_us = self._replay_us(num_rows, kind)
        line = f"{num_rows:4} rows: {whole_us:8.1f} us, pack {pack_us:6.1f} us"
        if split:
            line += self._split(num_rows, kind)
        for sequence in sequences:
            sampler.forget(sequence.request_id)
        return line

    def _pack_us(
        self, sampler: DeviceStepSampler, sequences: list[Sequence], words: NDArray[np.int32]
    ) -> float:
        scratch = words.copy()
        started = time.perf_counter()
        for step in range(10):
            sampler.pack([ChoiceRow(s, 4 + step) for s in sequences], scratch)
        return (time.perf_counter() - started) / 10 * 1e6

    def _split(self, num_rows: int, kind: ChoiceKind) -> str:
        names, before, line = list(self.choice.names), 0.0, ""
        for count, name in enumerate(names, start=1):
            self.choice.num_launches = count
            until = self._replay_us(num_rows, kind)
            line += f" {name} {until - before:.1f}"
            before = until
        self.choice.num_launches = 99
        return f" ({line.strip()})"

    def _replay_us(self, num_rows: int, kind: ChoiceKind) -> float:
        device = self.backend.device

        def work() -> None:
            self.choice.names = []
            self.choice.choose_rows(
                num_rows, address(self.logits), address(self.words), draws=kind > 0, full=kind > 1
            )

        work()
        recording = device.record(work)
        first, last = Event(timing=True), Event(timing=True)
        recording.replay(device)
        first.record(device)
        for _ in range(REPLAYS):
            recording.replay(device)
        last.record(device)
        last.wait()
        return 1e3 * last.ms_since(first) / REPLAYS


def main() -> int:
    bench = Bench(max(ROWS))
    for name, params in SETTINGS.items():
        print(name)
        for num_rows in ROWS:
            print("   ", bench.time(params, num_rows, split="--split" in sys.argv), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
