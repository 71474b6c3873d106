"""What clients and health see of a failed step, and of a device that is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

import pytest

from pegainfer_core.contract import (
    DeviceFault,
    EngineError,
    EngineInfo,
    Error,
    Finished,
    HealthState,
    SamplingParams,
    TokenEvent,
)
from pegainfer_core.engine import BuiltEngine, EngineClient, LocalEngine
from tests.scheduler.faulty_model import FaultyModel
from tests.scheduler.harness import Harness

LONG = SamplingParams(max_tokens=60, ignore_eos=True)
Fails = Callable[[int], Exception | None]


class Fault:
    """Lets a step fail.

    Attributes:
        error: What to fail with; taken by one step.
        first_step: No step before it fails.
    """

    error: Exception | None = None
    first_step = 0

    def __call__(self, step: int) -> Exception | None:
        if step < self.first_step:
            return None
        error, self.error = self.error, None
        return error


@pytest.fixture(params=["launch", "results"])
def where(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def fault() -> Fault:
    return Fault()


@pytest.fixture
def engine(where: str, fault: Fault) -> Iterator[LocalEngine]:
    """The real scheduler on a model that fails on demand."""

    def build() -> BuiltEngine:
        harness = Harness(num_usable_pages=200, max_model_len=256)
        FaultyModel.put_into(harness.model, where, fault)
        plan = harness.plan
        info = EngineInfo(
            family="fake",
            backend="numpy",
            vocab_size=plan.vocab_size,
            max_model_len=plan.max_model_len,
            page_tokens=plan.page_tokens,
            num_pages=200,
            max_num_seqs=plan.max_num_seqs,
            capabilities=plan.capabilities,
            pid=0,
        )
        return BuiltEngine(harness.scheduler, info)

    made = LocalEngine(build)
    yield made
    made.close()


def run(engine: LocalEngine, use: Callable[[EngineClient], Awaitable[None]]) -> None:
    async def main() -> None:
        await use(EngineClient(engine))

    asyncio.run(main())


async def answer(client: EngineClient, first: int) -> list[TokenEvent]:
    return [event async for event in client.submit([first, 1, 2], LONG)]


def test_the_engine_goes_on_after_a_failed_step(
    engine: LocalEngine, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    async def use(client: EngineClient) -> None:
        for round_number in range(5):
            fault.error = ZeroDivisionError("in a kernel's host code")
            with caplog.at_level(logging.CRITICAL):
                *_, last = await answer(client, round_number)
            assert isinstance(last, Error)
            assert "ZeroDivisionError: in a kernel's host code" in last.message
            assert client.health().state is HealthState.READY
            *_, last = await answer(client, round_number)
            assert isinstance(last, Finished) and last.completion_tokens == 60
        metrics = client.metrics()
        assert metrics.num_failed == 5 and metrics.num_finished_length == 5
        assert (metrics.num_running, metrics.kv_used_pages) == (0, 0)
        assert client.num_open == 0

    run(engine, use)


def test_a_lost_device_fails_all_and_ends_the_engine(engine: LocalEngine, fault: Fault) -> None:
    async def use(client: EngineClient) -> None:
        fault.error = DeviceFault("GPU 0 (Test) cannot be used any more")
        fault.first_step = 20
        # More than may run at once: some wait.
        streams = [client.submit([first, 1, 2], LONG) for first in range(9)]
        for stream in streams:
            *_, last = [event async for event in stream]
            assert isinstance(last, Error)
            assert "GPU 0 (Test) cannot be used any more" in last.message
        # The errors are on their way before the thread has ended.
        async with asyncio.timeout(20):
            while (health := client.health()).state is not HealthState.DEAD:
                await asyncio.sleep(0.01)
        assert "GPU 0 (Test) cannot be used any more" in health.detail
        with pytest.raises(EngineError, match="cannot be used any more"):
            client.submit([1], LONG)

    run(engine, use)
