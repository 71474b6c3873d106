"""`pegainfer bench throughput`: many requests at once, and how many tokens a second come of it."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from pegainfer_bench.dataset import DatasetChoice, RandomPrompts
from pegainfer_bench.offline_engine import (
    BatchTimes,
    OfflineRequest,
    check_lengths,
    offline_engine,
    time_batch,
)
from pegainfer_bench.report import write_json
from pegainfer_core.plugin import CommandFault
from pegainfer_core.text import TextError, Tokenizer

if TYPE_CHECKING:
    from pegainfer_bench.offline_options import ThroughputOptions
    from pegainfer_core.plugin import PreparedLaunch

_RANDOM_OUTPUT_TOKENS = 128
_CUSTOM_OUTPUT_TOKENS = 256


def run(launch: PreparedLaunch, options: ThroughputOptions) -> int:
    """Time the dataset's requests as one batch; the engine schedules them as it likes.

    Raises:
        CommandFault: The dataset is unusable, a request does not fit the model, or the engine
            refused it.
    """
    requests = _requests(launch, options)
    check_lengths(requests, launch.plan, "lower the lengths, or raise --max-model-len")
    timed, warmups = requests[: options.num_prompts], requests[options.num_prompts :]
    times = asyncio.run(_time(launch, timed, warmups))
    prompt_tokens = sum(len(request.token_ids) for request in timed)
    total = prompt_tokens + times.output_tokens
    seconds = times.duration_s
    print(
        f"Throughput: {len(timed) / seconds:.2f} requests/s, {total / seconds:.2f} total "
        f"tokens/s, {times.output_tokens / seconds:.2f} output tokens/s"
    )
    print(f"Total prompt tokens: {prompt_tokens}, output tokens: {times.output_tokens}")
    print(f"Time: {seconds:.3f} s on {launch.plan.backend}")
    if options.output_json is not None:
        result = {
            "backend": launch.plan.backend,
            "dataset_name": options.dataset_name,
            "elapsed_time": seconds,
            "num_requests": len(timed),
            "total_num_tokens": total,
            "total_output_tokens": times.output_tokens,
            "requests_per_second": len(timed) / seconds,
            "tokens_per_second": total / seconds,
            "output_tokens_per_second": times.output_tokens / seconds,
        }
        write_json(Path(options.output_json), result, "--output-json")
    return 0


async def _time(
    launch: PreparedLaunch, timed: list[OfflineRequest], warmups: list[OfflineRequest]
) -> BatchTimes:
    async with offline_engine(launch) as client:
        if warmups:
            await time_batch(client, warmups)
        with tqdm(total=len(timed), disable=None, unit="req") as bar:

            def on_end() -> None:
                bar.update()

            return await time_batch(client, timed, on_end)


def _requests(launch: PreparedLaunch, options: ThroughputOptions) -> list[OfflineRequest]:
    """The timed requests, then those for warming up."""
    seed = launch.context.options.seed
    choice = DatasetChoice(
        name=options.dataset_name,
        path=options.dataset_path,
        random_prompts=RandomPrompts(
            input_tokens=options.input_len,
            output_tokens=options.output_len or _RANDOM_OUTPUT_TOKENS,
            range_ratio=options.random_range_ratio,
            vocab_high=launch.plan.vocab_size,
        ),
        sharegpt_output_tokens=options.output_len,
        custom_output_tokens=options.output_len or _CUSTOM_OUTPUT_TOKENS,
    )
    tokenizer = None if options.dataset_name == "random" else _tokenizer(launch)
    count = options.num_prompts + options.num_warmups
    requests = []
    for drawn in choice.draw(count, random.Random(seed), seed, tokenizer):
        if isinstance(drawn.prompt, str):
            assert tokenizer is not None
            ids = tokenizer.encode(drawn.prompt, add_special_tokens=True)
        else:
            ids = drawn.prompt
        requests.append(OfflineRequest(ids, drawn.output_tokens))
    return requests


def _tokenizer(launch: PreparedLaunch) -> Tokenizer:
    try:
        return Tokenizer.from_dir(launch.context.model_dir)
    except TextError as error:
        raise CommandFault(str(error)) from error
