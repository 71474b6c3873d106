"""`pegainfer bench serve`: flags in, load on a server, tables and files out."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import os
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import uvloop
from tqdm import tqdm

from pegainfer_bench.client import LoadClient, Target, arrival_times, drive, served_model
from pegainfer_bench.dataset import BenchRequest, DatasetChoice, RandomPrompts
from pegainfer_bench.load_plan import (
    LoadLevel,
    headers,
    load_levels,
    request_fields,
    shown_metrics,
)
from pegainfer_bench.report import (
    LoadReport,
    LoadRow,
    check_plotting,
    load_table,
    parse_goodput,
    parse_percentiles,
    plot_rows,
    write_json,
)
from pegainfer_core.plugin import CommandFault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pegainfer_bench.client import LoadRun, Outcome
    from pegainfer_bench.serve_options import ServeBenchOptions
    from pegainfer_core.text import Tokenizer

API_KEY_VARIABLE = "OPENAI_API_KEY"
ALL_ANSWERED = 0
SOME_FAILED = 1

_WARMUP_TOKENS = 16


def run(options: ServeBenchOptions) -> int:
    """Run every level of load.

    Returns:
        0, or 1 when a request failed.

    Raises:
        CommandFault: A flag, the dataset or the server is at fault.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(ServeBench(options).run())


class ServeBench:
    """One call of the command.

    Args:
        options: Its flags.

    Raises:
        CommandFault: A flag is at fault.
    """

    def __init__(self, options: ServeBenchOptions) -> None:
        self._options = options
        self._levels = load_levels(options)
        self._metrics = shown_metrics(options)
        percents = parse_percentiles(options.metric_percentiles, "--metric-percentiles")
        # The plots show the 99th.
        self._percents = [*percents, *([] if 99 in percents or not options.plot else [99.0])]
        self._limits_ms = parse_goodput(options.goodput)
        url = options.base_url or f"http://{_bracketed(options.host)}:{options.port}"
        self._target = Target.parse(url, headers(options, os.environ.get(API_KEY_VARIABLE)))
        if not options.endpoint.startswith("/"):
            raise CommandFault(f"--endpoint {options.endpoint}: expected a path such as /v1/...")
        if options.plot is not None:
            check_plotting("--plot", options.plot)
            if self._levels[0].is_unlimited:
                raise CommandFault(
                    "--plot needs a load to draw over: --max-concurrency, --request-rate or a sweep"
                )
        self._result_path = _result_path(options)
        self._tokenizer = _tokenizer(options)
        self._dataset = _dataset(options, self._tokenizer)
        request_fields(options, "")

    async def run(self) -> int:
        """See `run`."""
        options = self._options
        # Drawn before the server is asked, so that a damaged file is what the user hears of first.
        seeds = [options.seed + index for index in range(len(self._levels))]
        drawn = [self._draw(*pair) for pair in zip(self._levels, seeds, strict=True)]
        model = await served_model(self._target, options.model, options.ready_check_timeout)
        client = LoadClient(
            self._target,
            options.endpoint,
            is_chat=options.is_chat,
            fields=request_fields(options, model),
            timeout_s=options.timeout,
        )
        reports: list[LoadReport] = []
        try:
            for level, (requests, rng) in zip(self._levels, drawn, strict=True):
                done = await self._run_level(client, level, requests, rng)
                facts = self._facts(level, model, options.seed + len(reports))
                reports.append(LoadReport(facts, done, self._percents, self._limits_ms))
                self._show(level, reports[-1])
        finally:
            client.close()
        self._keep(reports)
        if any("vocabulary" in error for report in reports for error, _ in report.errors):
            print(
                "pegainfer: --tokenizer DIR or --random-vocab-high N keeps random ids inside the "
                "model's vocabulary",
                file=sys.stderr,
            )
        return SOME_FAILED if any(report.num_failed for report in reports) else ALL_ANSWERED

    def _draw(self, level: LoadLevel, seed: int) -> tuple[list[BenchRequest], random.Random]:
        """Each level has prompts of its own: none may find another's in the prefix cache."""
        rng = random.Random(seed)
        count = level.num_prompts + self._options.num_warmups
        requests = self._dataset.draw(count, rng, seed, self._tokenizer)
        if not self._options.is_chat:
            return requests, rng
        return [_as_text(request, self._tokenizer) for request in requests], rng

    async def _run_level(
        self, client: LoadClient, level: LoadLevel, requests: list[BenchRequest], rng: random.Random
    ) -> LoadRun:
        timed, warmups = requests[: level.num_prompts], requests[level.num_prompts :]
        if warmups:
            short = [
                BenchRequest(prompt=r.prompt, output_tokens=min(r.output_tokens, _WARMUP_TOKENS))
                for r in warmups
            ]
            done = await drive(_encoded(client, short), lambda pair: client.send(*pair))
            _check_warmup(done)
        encoded = _encoded(client, timed)
        arrivals_s = None
        if math.isfinite(level.request_rate):
            burstiness = self._options.burstiness
            arrivals_s = arrival_times(len(timed), level.request_rate, burstiness, rng)
        with _no_collections(), tqdm(total=len(timed), disable=None, unit="req") as bar:

            def on_end(outcome: Outcome) -> None:
                bar.update()

            return await drive(
                encoded,
                lambda pair: client.send(*pair),
                arrivals_s=arrivals_s,
                max_concurrency=level.max_concurrency,
                on_end=on_end,
            )

    def _facts(self, level: LoadLevel, model: str, seed: int) -> dict[str, object]:
        options = self._options
        rate = level.request_rate
        facts: dict[str, object] = {
            "date": time.strftime("%Y%m%d-%H%M%S"),
            "label": options.label,
            "endpoint": options.endpoint,
            "base_url": self._target.url,
            "model_id": model,
            "dataset_name": options.dataset_name,
            "num_prompts": level.num_prompts,
            "seed": seed,
            "request_rate": rate if math.isfinite(rate) else "inf",
            "burstiness": options.burstiness,
            "max_concurrency": level.max_concurrency,
        }
        if options.dataset_name == "random":
            facts |= {
                "random_input_len": options.random_input_len,
                "random_output_len": options.random_output_len,
                "random_range_ratio": options.random_range_ratio,
                "random_prefix_len": options.random_prefix_len,
            }
        return facts

    def _show(self, level: LoadLevel, report: LoadReport) -> None:
        if self._options.json:
            print(msgspec.json.encode(report.as_json()).decode(), flush=True)
            for error, count in report.errors:
                print(f"failed ({count}): {error}", file=sys.stderr)
            return
        if len(self._levels) > 1:
            print(f"\n{level.name}:")
        print(load_table(report, self._metrics), flush=True)

    def _keep(self, reports: list[LoadReport]) -> None:
        options = self._options
        runs = [report.as_json(detailed=options.save_detailed) for report in reports]
        if self._result_path is not None:
            result = runs[0] if len(runs) == 1 else {"runs": runs}
            write_json(self._result_path, result, "--result-dir")
            print(f"result written to {self._result_path}", file=sys.stderr)
        if options.plot is not None:
            rows = [msgspec.convert(run, LoadRow) for run in runs]
            plot_rows(rows, Path(options.plot), "--plot")
            print(f"plot written to {options.plot}", file=sys.stderr)


def _encoded(client: LoadClient, requests: list[BenchRequest]) -> list[tuple[bytes, int]]:
    return [(client.encode(request), request.output_tokens) for request in requests]


def _check_warmup(run: LoadRun) -> None:
    """A warm-up that fails says what the run would."""
    failed = [outcome for outcome in run.outcomes if not outcome.ok]
    if failed:
        raise CommandFault(f"{len(failed)} warm-up requests failed: {failed[0].error}")


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """A collection over all that was received would show up as a latency."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _as_text(request: BenchRequest, tokenizer: Tokenizer | None) -> BenchRequest:
    if isinstance(request.prompt, str):
        return request
    if tokenizer is None:
        raise CommandFault(
            "a chat endpoint takes texts, not token ids; give --tokenizer DIR to make texts of them"
        )
    text = tokenizer.decode(request.prompt, skip_special_tokens=True)
    return BenchRequest(prompt=text, output_tokens=request.output_tokens)


def _tokenizer(options: ServeBenchOptions) -> Tokenizer | None:
    if options.tokenizer is None:
        return None
    from pegainfer_core.text import TextError, Tokenizer

    try:
        return Tokenizer.from_dir(options.tokenizer)
    except TextError as error:
        raise CommandFault(f"--tokenizer {options.tokenizer}: {error}") from error


def _dataset(options: ServeBenchOptions, tokenizer: Tokenizer | None) -> DatasetChoice:
    low, high = options.random_vocab_low, options.random_vocab_high
    if tokenizer is not None:
        high = min(high, tokenizer.vocab_size)
        low = 0 if low >= high else low
    if low >= high:
        raise CommandFault(f"--random-vocab-low {low} must be below --random-vocab-high {high}")
    return DatasetChoice(
        name=options.dataset_name,
        path=options.dataset_path,
        random_prompts=RandomPrompts(
            input_tokens=options.random_input_len,
            output_tokens=options.random_output_len,
            range_ratio=options.random_range_ratio,
            prefix_tokens=options.random_prefix_len,
            vocab_low=low,
            vocab_high=high,
        ),
        sharegpt_output_tokens=options.sharegpt_output_len,
        custom_output_tokens=options.custom_output_len,
    )


def _result_path(options: ServeBenchOptions) -> Path | None:
    if not (options.save_result or options.save_detailed or options.result_filename):
        return None
    folder = Path(options.result_dir)
    if not folder.is_dir():
        raise CommandFault(f"--result-dir {folder} is no folder")
    if options.result_filename is not None:
        return folder / options.result_filename
    label = options.label or "bench"
    return folder / f"{label}-{time.strftime('%Y%m%d-%H%M%S')}.json"
