"""Times single steps of a Qwen3 shape with dummy weights on the GPU.

`bench_step.py [--decode] [CONFIG]`; `--decode`: decode steps of few rows alone, with and without
our own kernel for their products.

Prints, per batch size, the device time of a recorded decode step (events around replays), the time
of a whole step with packing and read-back, and the share of the byte limit; then prefill.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from pegainfer_qwen3.config import plan_qwen3
from pegainfer_qwen3.engine import load_model

from pegainfer_core.backend.cuda import CudaBackend
from pegainfer_core.backend.cuda.cuda_ops import CudaOps
from pegainfer_core.backend.cuda.device import Event
from pegainfer_core.contract import CoreOptions, GenerateRequest, LaunchContext, SamplingParams
from pegainfer_core.engine import DecoderRunner, Row, Sequence, StepPlan, fitted_plan

READ_BYTES_A_S = 4.4e12
QWEN3_4B = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "dtype": "bfloat16",
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
}


class Bench:
    """A loaded model and what it takes to step it."""

    def __init__(self, config: dict[str, object], **options: object) -> None:
        folder = Path(tempfile.mkdtemp())
        (folder / "config.json").write_text(json.dumps(config))
        started = time.perf_counter()
        context = LaunchContext(
            model_dir=str(folder),
            family="qwen3",
            entry_point="pegainfer_qwen3.plugin",
            options=CoreOptions(load_format="dummy", **options),  # type: ignore[arg-type]
        )
        plan = plan_qwen3(context)
        self.backend = CudaBackend()
        made = time.perf_counter()
        loaded = load_model(context, plan, self.backend)
        self.adapters = loaded.adapters
        self.backend.device.synchronize()
        self.layout = loaded.kv.layout
        self.plan = fitted_plan(plan, self.layout, loaded.kv.num_pages - 1, None)
        self.runner = DecoderRunner(
            loaded.model, self.backend, loaded.kv, loaded.sampler, self.plan
        )
        self.runner.warm_up()
        print(
            f"backend {made - started:.2f} s, model {time.perf_counter() - made:.2f} s, "
            f"{loaded.kv.num_pages} pages"
        )
        self.random = np.random.default_rng(0)
        self._next_page = 1
        self._next_slot = 0

    def sequence(self, context: int) -> Sequence:
        """A random prompt, with pages for it and 600 more tokens."""
        ids = self.random.integers(0, 1000, context).tolist()
        params = SamplingParams(temperature=0)
        request = GenerateRequest(request_id=self._next_page, prompt_token_ids=ids, params=params)
        count = self.layout.pages_for(context + 600)
        pages = list(range(self._next_page, self._next_page + count))
        self._next_page += count
        sequence = Sequence(request, 600, page_ids=pages)
        sequence.slot = self._next_slot
        self._next_slot += 1
        return sequence

    def step(self, rows: list[Row]) -> None:
        """Compute rows and append what was chosen."""
        num_decode = sum(row.num_tokens == 1 for row in rows)
        results = self.runner.launch(StepPlan(rows, num_decode)).results()
        for row, result in zip(rows, results, strict=True):
            row.sequence.num_computed += row.num_tokens
            if result.token_id is not None:
                row.sequence.token_ids.append(result.token_id)

    def decode(
        self, num_rows: int, context: int, weight_bytes: float, num_adapters: int = 0
    ) -> str:
        """Time decode steps of so many rows with contexts of this length, adapters in turn."""
        self._next_page, self._next_slot = 1, 0
        sequences = [self.sequence(context) for _ in range(num_rows)]
        for sequence in sequences:
            # The keys before are whatever the pages hold: time does not depend on them.
            sequence.num_computed = context - 1
            if num_adapters:
                sequence.adapter_slot = sequence.slot % num_adapters
        walls = []
        for _ in range(40):
            started = time.perf_counter()
            self.step([Row(seq, seq.num_computed, 1, True) for seq in sequences])
            walls.append(time.perf_counter() - started)
        device_ms = self._replays(num_rows, adapted=num_adapters > 0)
        kv_bytes = num_rows * (context + 40) * self.layout.token_bytes
        limit_ms = 1e3 * (weight_bytes + kv_bytes) / READ_BYTES_A_S
        wall_ms = 1e3 * float(np.median(walls[8:]))
        return (
            f"decode {num_rows:4} x {context:6}: device {device_ms:7.3f} ms, step {wall_ms:7.3f} "
            f"ms, limit {limit_ms:6.3f} ms, {100 * limit_ms / device_ms:5.1f} %"
        )

    def prefill(self, num_tokens: int, adapter_slot: int = -1) -> str:
        """Time the whole prefill of one prompt, first token included."""
        walls = []
        for _ in range(5):
            self._next_page, self._next_slot = 1, 0
            sequence = self.sequence(num_tokens)
            sequence.adapter_slot = adapter_slot
            started = time.perf_counter()
            for start in range(0, num_tokens, self.plan.max_prefill_tokens):
                count = min(self.plan.max_prefill_tokens, num_tokens - start)
                self.step([Row(sequence, start, count, start + count == num_tokens)])
            walls.append(time.perf_counter() - started)
        return f"prefill {num_tokens:6}: {1e3 * float(np.median(walls[1:])):7.2f} ms"

    def forget_recordings(self) -> None:
        """Record anew, after the ops were told to do something else."""
        self.backend._uploads[self.runner._metadata].recordings.clear()

    def _replays(self, num_rows: int, *, adapted: bool) -> float:
        """Milliseconds of one replay of the recording for so many rows."""
        upload = self.backend._uploads[self.runner._metadata]
        recording = next(
            made
            for (shape, _), made in upload.recordings.items()
            if (shape.num_decode, shape.adapted) == (num_rows, adapted)
        )
        assert recording is not None
        first, last = Event(timing=True), Event(timing=True)
        first.record(self.backend.device)
        for _ in range(20):
            recording.replay(self.backend.device)
        last.record(self.backend.device)
        last.wait()
        return last.ms_since(first) / 20


def few_rows(bench: Bench, weight_bytes: float) -> list[str]:
    """Decode steps with our own kernel for few rows, then without."""
    ops = bench.backend.ops
    assert isinstance(ops, CudaOps)
    products = ops.products
    lines = []
    for most in (products.max_few_rows, 0):
        products.max_few_rows = most
        bench.forget_recordings()
        lines.append(f"our own kernel up to {most} rows:")
        lines += [bench.decode(rows, 1024, weight_bytes) for rows in (1, 2, 4, 8, 16)]
        lines += [bench.decode(1, 16, weight_bytes), bench.decode(1, 32768, weight_bytes)]
    return lines


def main() -> int:
    names = [name for name in sys.argv[1:] if not name.startswith("-")]
    config = json.loads(Path(names[0]).read_text()) if names else QWEN3_4B
    bench = Bench(config)
    weight_bytes = 8.04e9
    if "--decode" in sys.argv:
        print("\n".join(few_rows(bench, weight_bytes)))
        return 0
    lines = [bench.decode(rows, 1024, weight_bytes) for rows in (1, 2, 4, 8, 16, 32, 64, 128, 256)]
    lines += [bench.decode(1, 16, weight_bytes), bench.decode(1, 32768, weight_bytes)]
    lines += [bench.decode(8, 8192, weight_bytes)]
    lines += [bench.prefill(size) for size in (128, 1024, 4096, 16384)]
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
