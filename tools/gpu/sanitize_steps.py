"""Steps that launch every kernel once or a few times on small inputs: what sanitizers watch.

`sanitize_steps.py [--small] [--rows N ...] [--own] [--plant]` serves a decoder of Qwen3-4B's widths
and a tiny float32 one with prompts and options that take every way through the engine, then fails
if a kernel of those decoders was never launched. Run it by itself or under `compute-sanitizer`; the
shell script beside it does the latter. `--small` narrows the first decoder and records no steps,
for tools that take seconds for what takes microseconds. `--own` copies each result of cuBLASLt onto
itself: its kernels store through tensor maps, which initcheck does not see, and would be reported
wherever ours read what they wrote. `--plant` only writes past an allocation, to see whether a tool
notices.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pegainfer_qwen3.config import plan_qwen3
from pegainfer_qwen3.engine import launch

from pegainfer_core.backend.cuda import CudaBackend
from pegainfer_core.backend.cuda.kernel import Kernel
from pegainfer_core.backend.cuda.library import KernelLibrary
from pegainfer_core.backend.cuda.products import Products
from pegainfer_core.contract import CoreOptions, Finished, LaunchContext, SamplingParams
from pegainfer_core.engine import EngineClient
from pegainfer_core.kernels import catalog
from pegainfer_core.testing.tiny import tiny_adapter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pegainfer_core.backend.cuda.device import DeviceMemory
    from pegainfer_core.backend.cuda.product_shape import ProductShape
    from pegainfer_core.kernels import KernelSpec

NUM_TOKENS = 4
ADAPTER = "adapter"
#: Each takes another way through the products; most of a step's rows are one token.
ROWS = (1, 3, 12, 40, 100)
LONG_PROMPT_TOKENS = 400
WIDE = {
    "model_type": "qwen3",
    "dtype": "bfloat16",
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 2,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 5003,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
}
NARROW = WIDE | {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "vocab_size": 601,
}
TINY = WIDE | {
    "dtype": "float32",
    "hidden_size": 160,
    "intermediate_size": 224,
    "num_attention_heads": 5,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "vocab_size": 997,
}
SAMPLED = (
    SamplingParams(temperature=0.9, seed=3, max_tokens=NUM_TOKENS),
    SamplingParams(temperature=0.7, top_k=20, top_p=0.9, seed=4, max_tokens=NUM_TOKENS),
    SamplingParams(temperature=1.0, min_p=0.05, seed=5, max_tokens=NUM_TOKENS),
    SamplingParams(
        temperature=0.8,
        seed=6,
        presence_penalty=0.4,
        frequency_penalty=0.3,
        repetition_penalty=1.1,
        min_tokens=2,
        logit_bias={5: 3.0},
        max_tokens=NUM_TOKENS,
    ),
    SamplingParams(temperature=0.8, seed=7, logprobs=3, prompt_logprobs=2, max_tokens=NUM_TOKENS),
)

#: Launched by the tests of single ops, and by no step.
OF_SINGLE_OPS = {"add_rows", "argmax_parts", "argmax_rows", "silu_mul"}

_launched: set[str] = set()
_prepared: set[str] = set()


_PLANTED_BYTES = 8 << 20
_MISSING_BYTES = 4096


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS)
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--plant", action="store_true")
    options = parser.parse_args()
    if options.plant:
        _write_past_the_end()
        return 0
    _watch_launches()
    if options.own:
        _rewrite_products()
    for name, config in (("bfloat16", NARROW if options.small else WIDE), ("float32", TINY)):
        num_tokens = asyncio.run(_serve(config, options.rows, record=not options.small))
        print(f"{name}: {num_tokens} tokens", flush=True)
    print(f"{len(_launched)} kernels launched: {', '.join(sorted(_launched))}")
    never = sorted(_prepared - _launched - OF_SINGLE_OPS)
    if never:
        print(f"never launched: {', '.join(never)}")
    return 1 if never else 0


def _write_past_the_end() -> None:
    """Fill more than was allocated: into memory of the same page, which no device notices.

    The allocation is large, so that none but it lies in that page.
    """
    backend = CudaBackend()
    memory = backend.device.allocate(_PLANTED_BYTES - _MISSING_BYTES)
    table = backend.device.allocate(2 << 16)
    backend.device.fill(table.address, 0, table.num_bytes)
    kernel = backend.library.get(catalog.fill_quantiles("bf16"))
    num_values = _PLANTED_BYTES // 2
    grid = (-(-num_values // (16 * catalog.SEEDED_BLOCK)), 1)
    kernel.launch(backend.device.stream, grid, memory.address, table.address, 1, num_values)
    backend.device.synchronize()


def _watch_launches() -> None:
    """Note the name of every kernel that is prepared and of every one that is launched."""
    launch_kernel, prepare = Kernel.launch, KernelLibrary.prepare

    def launch_noted(self: Kernel, *arguments: object) -> None:
        _launched.add(self.name)
        launch_kernel(self, *arguments)  # type: ignore[arg-type]

    def prepare_noted(self: KernelLibrary, specs: Iterable[KernelSpec]) -> None:
        wanted = list(specs)
        _prepared.update(spec.function for spec in wanted)
        prepare(self, wanted)

    Kernel.launch = launch_noted  # type: ignore[assignment, method-assign]
    KernelLibrary.prepare = prepare_noted  # type: ignore[method-assign]


def _rewrite_products() -> None:
    """Copy the result of each product to another place and back, by copies that tools follow."""
    run = Products.run
    others: dict[int, DeviceMemory] = {}

    def run_rewritten(self: Products, shape: ProductShape, x: int, weight: int, out: int) -> None:
        run(self, shape, x, weight, out)
        num_bytes = shape.rows * shape.n * shape.result.itemsize
        device = self._device
        other = others.get(num_bytes) or device.allocate(num_bytes)
        others[num_bytes] = other
        device.copy(other.address, out, num_bytes)
        device.copy(out, other.address, num_bytes)

    Products.run = run_rewritten  # type: ignore[method-assign]


async def _serve(config: dict[str, object], batches: Sequence[int], *, record: bool) -> int:
    """Answer batches of requests with one engine; returns the tokens generated."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder)
        (model / "config.json").write_text(json.dumps(config))
        adapter = tiny_adapter(model / ADAPTER, model, rank=20)
        context = LaunchContext(
            model_dir=folder,
            family="qwen3",
            entry_point="pegainfer_qwen3.plugin",
            options=CoreOptions(
                backend="cuda",
                load_format="dummy",
                cuda_graph=record,
                num_kv_pages=512,
                max_num_seqs=max(batches),
                max_prefill_tokens=256,
                max_model_len=1024,
                lora=[f"{ADAPTER}={adapter}"],
            ),
        )
        engine = launch(context, plan_qwen3(context))
    client = EngineClient(engine)
    try:
        return sum([await _answer(client, num_rows, config) for num_rows in batches])
    finally:
        await client.close()


async def _answer(client: EngineClient, num_rows: int, config: dict[str, object]) -> int:
    """Rows side by side: short prompts, one of several chunks, every kind of sampling, adapters."""
    vocab = int(str(config["vocab_size"]))
    greedy = SamplingParams(temperature=0, max_tokens=NUM_TOKENS)
    streams = []
    for row in range(num_rows):
        length = LONG_PROMPT_TOKENS if row == 1 else 1 + 5 * (row % 7)
        prompt = [(7 * row + 31 * at + 1) % vocab for at in range(length)]
        params = SAMPLED[row % len(SAMPLED)] if row % 3 == 2 else greedy
        # The smallest batches have none, and so take the ways of a step without adapters.
        lora = ADAPTER if row % 4 == 3 else None
        streams.append(client.submit(prompt, params, lora=lora))
    num_tokens = 0
    for stream in streams:
        *_, last = [event async for event in stream]
        if not isinstance(last, Finished):
            raise RuntimeError(f"a request ended with {last}")
        num_tokens += last.completion_tokens
    return num_tokens


if __name__ == "__main__":
    sys.exit(main())
