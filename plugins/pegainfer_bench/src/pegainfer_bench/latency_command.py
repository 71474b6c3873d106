"""`pegainfer bench latency`: one batch, timed again and again."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tqdm import tqdm

from pegainfer_bench.dataset import RandomPrompts
from pegainfer_bench.offline_engine import (
    BatchTimes,
    OfflineRequest,
    check_lengths,
    offline_engine,
    time_batch,
)
from pegainfer_bench.report import Summary, write_json
from pegainfer_core.plugin import CommandFault

if TYPE_CHECKING:
    from pegainfer_bench.offline_options import LatencyOptions
    from pegainfer_core.plugin import PreparedLaunch

_PERCENTS: Final = (10, 25, 50, 75, 90, 99)


def run(launch: PreparedLaunch, options: LatencyOptions) -> int:
    """Time batches of new random prompts each, so that none finds another's prefix.

    Raises:
        CommandFault: A request does not fit the model, or the engine refused it.
    """
    plan = launch.plan
    if options.batch_size > plan.max_num_seqs:
        raise CommandFault(
            f"--batch-size {options.batch_size} is more than the {plan.max_num_seqs} requests "
            "of one step; raise --max-num-seqs"
        )
    rng = random.Random(launch.context.options.seed)
    prompts = RandomPrompts(
        input_tokens=options.input_len,
        output_tokens=options.output_len,
        vocab_high=plan.vocab_size,
    )
    batches = []
    for _ in range(options.num_iters_warmup + options.num_iters):
        drawn = prompts.draw(options.batch_size, rng, 0)
        batches.append([OfflineRequest(list(map(int, r.prompt)), r.output_tokens) for r in drawn])
    check_lengths(batches[0], plan, "lower --input-len or --output-len")
    times = asyncio.run(_time(launch, batches))[options.num_iters_warmup :]
    _report(launch, options, times)
    return 0


async def _time(launch: PreparedLaunch, batches: list[list[OfflineRequest]]) -> list[BatchTimes]:
    async with offline_engine(launch) as client:
        return [await time_batch(client, batch) for batch in tqdm(batches, disable=None)]


def _report(launch: PreparedLaunch, options: LatencyOptions, times: list[BatchTimes]) -> None:
    latency = Summary([1e3 * batch.duration_s for batch in times], _PERCENTS)
    first = Summary([1e3 * batch.first_token_s for batch in times], _PERCENTS)
    rate = 1e3 * times[0].output_tokens / latency.mean
    print(
        f"{options.batch_size} x {options.input_len} tokens in, {options.output_len} out, "
        f"on {launch.plan.backend}: {len(times)} batches"
    )
    print(f"{'':<22}{'latency ms':>12}{'first token ms':>16}")
    print(f"{'mean':<22}{latency.mean:>12.2f}{first.mean:>16.2f}")
    for percent in _PERCENTS:
        values = latency.percentiles[percent], first.percentiles[percent]
        print(f"{f'{percent}% percentile':<22}{values[0]:>12.2f}{values[1]:>16.2f}")
    decode_ms = None
    if options.output_len > 1:
        decode_ms = (latency.mean - first.mean) / (options.output_len - 1)
        print(f"a token after the first: {decode_ms:.3f} ms")
    print(f"output tokens/s: {rate:.1f}")
    if options.output_json is not None:
        result = {
            "backend": launch.plan.backend,
            "batch_size": options.batch_size,
            "input_len": options.input_len,
            "output_len": options.output_len,
            "avg_latency": latency.mean / 1e3,
            "latencies": [batch.duration_s for batch in times],
            "percentiles": {f"{p:g}": v / 1e3 for p, v in latency.percentiles.items()},
            "avg_first_token": first.mean / 1e3,
            "mean_tpot_ms": decode_ms,
            "output_tokens_per_second": rate,
        }
        write_json(Path(options.output_json), result, "--output-json")
