"""The whole engine: scheduler, KV manager and model together, over the in-process transport."""

from __future__ import annotations

import gc
import queue
import weakref
from typing import TYPE_CHECKING

import msgspec
import pytest
from pegainfer_qwen3.config import plan_qwen3
from pegainfer_qwen3.engine import launch
from pegainfer_qwen3.model import Qwen3Model

from pegainfer_core.contract import (
    TERMINAL_EVENTS,
    GenerateRequest,
    SamplingParams,
    Scheduled,
    StepFrame,
    Tokens,
)
from pegainfer_core.weights import ConfigError
from plugins.pegainfer_qwen3.tests.stepper import launch_context
from tests.hf import cases, golden

if TYPE_CHECKING:
    from pathlib import Path

    from pegainfer_core.contract import EngineHandle
    from plugins.pegainfer_qwen3.tests.conftest import Checkpoints

PARAMS = SamplingParams(temperature=0, max_tokens=cases.NUM_GREEDY_TOKENS, ignore_eos=True)


def run(
    engine: EngineHandle, frames: queue.SimpleQueue[StepFrame], requests: list[GenerateRequest]
) -> tuple[dict[int, list[int]], dict[int, int]]:
    """Tokens and cached prompt tokens of each request."""
    tokens: dict[int, list[int]] = {request.request_id: [] for request in requests}
    cached: dict[int, int] = {}
    for request in requests:
        engine.submit(request)
    open_requests = set(tokens)
    while open_requests:
        for event in frames.get(timeout=60).events:
            if isinstance(event, Tokens):
                tokens[event.request_id] += event.token_ids
            elif isinstance(event, Scheduled):
                cached[event.request_id] = event.cached_tokens
            elif isinstance(event, TERMINAL_EVENTS):
                open_requests.discard(event.request_id)
    return tokens, cached


@pytest.mark.parametrize(("case", "itl_target_ms"), [("gqa4", None), ("yarn", None), ("gqa4", 0.1)])
def test_goldens_cold_warm_and_side_by_side(
    case: str, itl_target_ms: float | None, checkpoints: Checkpoints
) -> None:
    context = launch_context(
        checkpoints[case], max_prefill_tokens=48, num_kv_pages=120, itl_target_ms=itl_target_ms
    )
    plan = plan_qwen3(context)
    engine = launch(context, plan)
    frames: queue.SimpleQueue[StepFrame] = queue.SimpleQueue()
    engine.connect(frames.put)
    try:
        assert engine.info.num_pages == 120
        assert engine.info.backend == "numpy"
        prompts = list(golden.load(case).prompts.values())
        for round_index in range(2):
            requests = [
                GenerateRequest(
                    request_id=10 * round_index + i,
                    prompt_token_ids=prompt.prompt.tolist(),
                    params=PARAMS,
                )
                for i, prompt in enumerate(prompts)
            ]
            tokens, cached = run(engine, frames, requests)
            for request, prompt in zip(requests, prompts, strict=True):
                assert tokens[request.request_id] == prompt.greedy.tolist()
                full_pages = (prompt.prompt.size - 1) // plan.page_tokens
                expected = full_pages * plan.page_tokens if round_index else 0
                assert cached[request.request_id] == expected
        metrics = engine.metrics()
        assert (metrics.num_running, metrics.kv_used_pages) == (0, 0)
        assert metrics.kv_total_pages == 120
    finally:
        engine.close()


def test_a_broken_checkpoint_ends_the_launch(tmp_path: Path, checkpoints: Checkpoints) -> None:
    (tmp_path / "config.json").write_text((checkpoints["gqa1"] / "config.json").read_text())
    context = launch_context(tmp_path)
    with pytest.raises(ConfigError, match="no safetensors file"):
        launch(context, plan_qwen3(context))


def test_an_impossible_number_of_threads_ends_the_launch(checkpoints: Checkpoints) -> None:
    context = msgspec.structs.replace(launch_context(checkpoints["gqa1"]), threads=0)
    with pytest.raises(ConfigError, match="threads is 0"):
        launch(context, plan_qwen3(context))


def test_a_closed_engine_gives_its_memory_back(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, and although the handle is still held: another model may be next."""
    models: list[weakref.ref[Qwen3Model]] = []

    class Watched(Qwen3Model):
        def freeze(self) -> None:
            models.append(weakref.ref(self))
            super().freeze()

    monkeypatch.setattr("pegainfer_qwen3.engine.Qwen3Model", Watched)
    context = launch_context(checkpoints["gqa1"])
    gc.disable()
    try:
        engine = launch(context, plan_qwen3(context))
        (model,) = models
        assert model() is not None
        engine.close()
        assert model() is None
    finally:
        gc.enable()
    assert engine.info.family == "qwen3"
    assert engine.metrics().kv_total_pages == engine.info.num_pages
