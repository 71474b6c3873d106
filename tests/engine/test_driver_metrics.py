"""What the driver publishes is what holds once its commands are obeyed, not before."""

from __future__ import annotations

import pytest

from pegainfer_core.contract import (
    TERMINAL_EVENTS,
    EngineMetrics,
    GenerateRequest,
    SamplingParams,
    StepFrame,
)
from pegainfer_core.engine import driver as driver_module
from pegainfer_core.engine.command import Abort, Close, Submit
from pegainfer_core.engine.driver import Driver
from pegainfer_core.engine.heartbeat import Heartbeat
from tests.scheduler.harness import Harness


def submit(request_id: int, num_tokens: int) -> Submit:
    params = SamplingParams(max_tokens=num_tokens, ignore_eos=True)
    return Submit(
        GenerateRequest(
            request_id=request_id, prompt_token_ids=[request_id % 40] * 9, params=params
        )
    )


def test_counts_match_what_clients_have_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mass of waiting requests is aborted; every frame finds the counts of its moment."""
    monkeypatch.setattr(driver_module, "_METRICS_PERIOD_S", 0.0)
    heard: list[tuple[int, EngineMetrics]] = []
    num_ended = 0

    def sink(frame: StepFrame) -> None:
        nonlocal num_ended
        num_ended += sum(isinstance(event, TERMINAL_EVENTS) for event in frame.events)
        heard.append((num_ended, engine.metrics))
        if len(heard) == 3:
            for request_id in range(10, 40):
                engine.inbox.put(Abort(request_id))
        if num_ended == 40:
            engine.inbox.put(Close())

    engine = Driver(Harness(max_num_seqs=2).scheduler, sink, Heartbeat())
    for request_id in range(40):
        engine.inbox.put(submit(request_id, 6))
    engine.run()
    for count, metrics in heard:
        assert metrics.num_running + metrics.num_waiting == 40 - count
        assert metrics.num_running <= 2
    after = heard[3][1]
    assert (after.num_aborted, after.num_waiting) == (30, 40 - heard[3][0] - 2)
    assert heard[-1][1].kv_used_pages == 0
