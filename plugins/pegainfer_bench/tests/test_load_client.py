"""Against `tools/bench/load.py`: the same requests, the same arithmetic, the same counts."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import random
from collections.abc import AsyncIterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pegainfer_bench.client import AnswerReader, LoadRun, Outcome
from pegainfer_bench.report import LoadReport

from plugins.pegainfer_bench.tests.conftest import ROOT, Bench
from plugins.pegainfer_bench.tests.scripted_server import (
    DONE,
    ScriptedServer,
    event,
    token,
    usage,
)

Recording = list[tuple[float, bytes]]


@pytest.fixture
def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("load", ROOT / "tools" / "bench" / "load.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def arguments(**given: object) -> argparse.Namespace:
    defaults = {
        "model": "m", "name": "", "input_len": 20, "output_len": 6, "num": 10, "concurrency": 3,
        "rate": 0.0, "seed": 11, "shared_prefix": 0, "repeat": False, "settle": 0.0,
        "between_url": "", "warmup": 0, "timeout": 30.0, "vocab_lo": 0, "vocab_hi": 250,
    }  # fmt: skip
    return argparse.Namespace(**{**defaults, **given})


def recordings(rng: random.Random) -> list[Recording]:
    """Streams with the time of each line: most are whole, some fail, some lack usage."""
    made = []
    for number in range(40):
        now_s = rng.random()
        lines: Recording = []
        count = rng.randint(1, 12)
        for _ in range(count):
            now_s += rng.expovariate(50)
            lines.append((now_s, token()))
        if number % 9 == 4:
            lines.append((now_s, event(error={"message": "boom"})))
        elif number % 9 != 7:
            tokens = count * rng.randint(1, 3)
            lines.append((now_s, usage(rng.randint(1, 99), tokens, rng.choice([None, 0, 5]))))
        made.append([*lines, (now_s, DONE)])
    return [*made, [(1.0, DONE)]]


class Replay:
    """What `load.one` needs of a session and of `time`, from a recording."""

    def __init__(self, recording: Recording) -> None:
        self.now_s = 0.0
        self.status = 200
        self._recording = recording

    def perf_counter(self) -> float:
        return self.now_s

    def post(self, url: str, json: object) -> Replay:
        return self

    async def __aenter__(self) -> Replay:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    @property
    async def content(self) -> AsyncIterator[bytes]:
        for now_s, lines in self._recording:
            self.now_s = now_s
            for line in lines.splitlines(keepends=True):
                yield line


def test_recorded_streams_give_the_same_figures(
    load: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs: list[dict[str, object]] = []
    ours: list[Outcome] = []
    for recording in recordings(random.Random(3)):
        replay = Replay(recording)
        monkeypatch.setattr(load, "time", SimpleNamespace(perf_counter=replay.perf_counter))
        asyncio.run(load.one(replay, "", "m", [], 4, theirs))
        reader = AnswerReader(Outcome(asked_tokens=4, sent_s=0.0), is_chat=False)
        for now_s, lines in recording:
            reader.feed(lines, now_s)
        reader.finish()
        ours.append(reader.outcome)
    expected = load.summary(theirs, 2.5, "")
    found = LoadReport({}, LoadRun(ours, 2.5), [50, 99]).as_json()
    assert expected["failed"] == 5 and expected["ok"] == 36
    names = {
        "ok": "completed", "failed": "failed", "in_tok": "total_input_tokens",
        "out_tok": "total_output_tokens", "cached": "total_cached_tokens",
        "out_tok_s": "output_throughput", "req_s": "request_throughput",
        "ttft_mean": "mean_ttft_ms", "ttft_p50": "median_ttft_ms", "ttft_p99": "p99_ttft_ms",
        "tpot_mean": "mean_tpot_ms", "tpot_p50": "p50_tpot_ms", "tpot_p99": "p99_tpot_ms",
        "itl_p50": "median_itl_ms", "itl_p99": "p99_itl_ms",
    }  # fmt: skip
    for theirs_name, our_name in names.items():
        # Theirs are rounded, some to one digit.
        assert found[our_name] == pytest.approx(expected[theirs_name], abs=0.0501), our_name


@pytest.mark.parametrize("prefix", [0, 8])
def test_one_seed_gives_the_same_requests(
    load: ModuleType, bench: Bench, server: ScriptedServer, prefix: int
) -> None:
    asyncio.run(load.run(arguments(url=server.url, shared_prefix=prefix)))
    theirs, server.bodies = server.bodies, []
    done = bench(
        "serve", "--base-url", server.url, "--num-prompts", 10, "--max-concurrency", 3,
        "--seed", 11, "--random-input-len", 20 - prefix, "--random-prefix-len", prefix,
        "--random-output-len", 6, "--random-vocab-low", 0, "--random-vocab-high", 250,
    )  # fmt: skip
    assert done.code == 0, done.err

    def in_order(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(bodies, key=lambda body: body["prompt"])

    assert in_order(server.bodies) == in_order(theirs)


def test_our_server_is_counted_alike(load: ModuleType, bench: Bench, echo_url: str) -> None:
    theirs = asyncio.run(load.run(arguments(url=echo_url, model=None)))
    done = bench(
        "serve", "--base-url", echo_url, "--num-prompts", 10, "--max-concurrency", 3, "--seed", 11,
        "--random-input-len", 20, "--random-output-len", 6, "--random-vocab-low", 0,
        "--random-vocab-high", 250, "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    ours = json.loads(done.out)
    assert (ours["completed"], ours["failed"]) == (theirs["ok"], theirs["failed"]) == (10, 0)
    assert ours["total_input_tokens"] == theirs["in_tok"] == 200
    assert ours["total_output_tokens"] == theirs["out_tok"] == 60
    # However late an event is seen, five tokens after the first take 10 ms in all.
    assert ours["mean_ttft_ms"] + 5 * ours["mean_tpot_ms"] >= 9.9
    assert theirs["ttft_mean"] + 5 * theirs["tpot_mean"] >= 9.9
