"""Tokens a second of a full batch with and without a form: `bench_structured.py MODEL [...]`.

The engine runs in a process of its own, as behind the server. A run counts from the moment when
every request has its first token to the end of the first of them, so prompts are left out. The form
is a list of objects with 20 fields, which no answer here completes; with `--load-format dummy` its
short strings make up for a model that has nothing to say.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import statistics
import time
from pathlib import Path

from pegainfer_core.contract import CoreOptions, SamplingParams, StructuredOutput, Tokens
from pegainfer_core.engine import EngineClient, ProcessEngine
from pegainfer_core.plugin import PluginHost, prepare_launch

KINDS: list[dict[str, object]] = [
    {"type": "string", "maxLength": 24},
    {"type": "integer", "minimum": 0, "maximum": 100_000},
    {"type": "boolean"},
    {"enum": ["red", "green", "blue"]},
    {"type": "array", "items": {"type": "number"}, "maxItems": 3},
]
FIELDS = {f"field_{number}": KINDS[number % len(KINDS)] for number in range(20)}
SCHEMA = {
    "type": "array",
    "minItems": 1000,
    "items": {
        "type": "object",
        "properties": FIELDS,
        "required": list(FIELDS),
        "additionalProperties": False,
    },
}
FORM = StructuredOutput(kind="json_schema", text=json.dumps(SCHEMA))


class Run:
    """One batch: when its tokens came."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._times: list[list[float]] = []

    async def go(self, batch: list[SamplingParams], num_prompt: int, seed: int) -> None:
        """Answer a batch; prompts are random and new."""
        chance = random.Random(seed)
        prompts = [[chance.randrange(100, 20_000) for _ in range(num_prompt)] for _ in batch]
        vocab = self._client.info.vocab_size
        prompts = [[token_id % vocab for token_id in prompt] for prompt in prompts]
        pairs = zip(prompts, batch, strict=True)
        self._times = await asyncio.gather(*(self._answer(*pair) for pair in pairs))

    async def _answer(self, prompt: list[int], params: SamplingParams) -> list[float]:
        stream = self._client.submit(prompt, params)
        times: list[float] = []
        while True:
            for event in await stream.next_events():
                if isinstance(event, Tokens):
                    times += [time.perf_counter()] * len(event.token_ids)
                elif type(event).__name__ in ("Finished", "Rejected", "Error"):
                    if len(times) != params.max_tokens:
                        raise SystemExit(f"an answer ended early: {event}")
                    return times

    def tokens_a_second(self, rows: slice = slice(None)) -> float:
        """Of some rows, while all of them ran."""
        begin = max(times[0] for times in self._times)
        end = min(times[-1] for times in self._times)
        found = [sum(begin < at <= end for at in times) for times in self._times[rows]]
        return sum(found) / (end - begin)

    def gap_ms(self, rows: slice = slice(None)) -> float:
        """Median gap between tokens of some rows."""
        pairs = (pair for times in self._times[rows] for pair in itertools.pairwise(times))
        gaps = [after - before for before, after in pairs]
        return 1e3 * statistics.median(gaps)


async def measure(client: EngineClient, arguments: argparse.Namespace) -> None:
    """Print a line a variant."""
    size, rounds = arguments.batch, arguments.rounds
    common = {"max_tokens": arguments.output_len, "ignore_eos": True}
    half = size // 2
    for name, sampling in (("greedy", {"temperature": 0.0}), ("drawn", {"top_p": 0.95})):
        plain = SamplingParams(**common, **sampling)
        formed = SamplingParams(**common, **sampling, structured=FORM)
        variants = {
            "plain": [plain] * size,
            "form": [formed] * size,
            "mixed": [plain] * half + [formed] * (size - half),
        }
        figures: dict[str, list[tuple[float, float]]] = {key: [] for key in variants}
        for number in range(rounds + 1):
            for key, batch in variants.items():
                run = Run(client)
                await run.go(batch, arguments.input_len, seed=1000 * number + len(key))
                if number:  # the first one loads kernels and records steps
                    figures[key].append((run.tokens_a_second(), run.gap_ms(slice(0, half))))
        best = {key: max(pairs) for key, pairs in figures.items()}
        for key, (rate, gap) in best.items():
            share = rate / best["plain"][0]
            print(
                f"{name:7}{key:7}{rate:10.0f} tokens/s {share:7.1%} of plain; median gap "
                f"{gap:.2f} ms; all rounds {[round(rate) for rate, _ in figures[key]]}",
                flush=True,
            )


def main() -> None:
    """Start the engine, measure, stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--input-len", type=int, default=256)
    parser.add_argument("--output-len", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backend", default="auto", choices=["auto", "numpy", "cuda"])
    parser.add_argument("--load-format", default="auto", choices=["auto", "dummy"])
    parser.add_argument("--max-model-len", type=int, default=None)
    arguments = parser.parse_args()
    options = CoreOptions(
        backend=arguments.backend,
        load_format=arguments.load_format,
        max_num_seqs=arguments.batch,
        max_model_len=arguments.max_model_len,
    )
    launch = prepare_launch(PluginHost.load(), arguments.model, options=options)
    handle = ProcessEngine(launch.context, launch.plan)

    async def run() -> None:
        await measure(EngineClient(handle), arguments)

    try:
        asyncio.run(run())
    finally:
        handle.close()


if __name__ == "__main__":
    main()
