"""Runs a load: who sends what when. Knows no protocol."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from pegainfer_bench.client.outcome import Outcome

T = TypeVar("T")
Send = Callable[[T], Awaitable[Outcome]]


class LoadRun(NamedTuple):
    """What a run came to.

    Attributes:
        outcomes: In the order of the requests.
        duration_s: From the first request to the end of the last answer.
    """

    outcomes: list[Outcome]
    duration_s: float


async def drive(
    requests: Sequence[T],
    send: Send[T],
    *,
    arrivals_s: Sequence[float] | None = None,
    max_concurrency: int | None = None,
    on_end: Callable[[Outcome], None] = lambda outcome: None,
) -> LoadRun:
    """Send all requests and wait for all answers.

    Args:
        requests: In their order.
        send: Sends one and returns at the end of its answer; its time starts when it is called.
        arrivals_s: When each one arrives, from the start; None has all arrive at once.
        max_concurrency: Most under way; those that arrive beyond wait for an end.
        on_end: Called at each end.
    """
    outcomes: list[Outcome | None] = [None] * len(requests)

    async def one(index: int) -> None:
        outcome = await send(requests[index])
        outcomes[index] = outcome
        on_end(outcome)

    started_s = time.perf_counter()
    if arrivals_s is None:
        await _at_once(one, len(requests), max_concurrency or len(requests))
    else:
        await _on_time(one, arrivals_s, started_s, max_concurrency or len(requests))
    duration_s = time.perf_counter() - started_s
    return LoadRun([outcome for outcome in outcomes if outcome is not None], duration_s)


async def _at_once(one: Callable[[int], Awaitable[None]], count: int, concurrency: int) -> None:
    """A fixed number of clients, each of which sends again as soon as it was answered."""
    indices = iter(range(count))

    async def client() -> None:
        for index in indices:
            await one(index)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, count)):
            group.create_task(client())


async def _on_time(
    one: Callable[[int], Awaitable[None]],
    arrivals_s: Sequence[float],
    started_s: float,
    concurrency: int,
) -> None:
    slots = asyncio.Semaphore(concurrency)

    async def in_slot(index: int) -> None:
        async with slots:
            await one(index)

    async with asyncio.TaskGroup() as group:
        for index, arrival_s in enumerate(arrivals_s):
            # Against the start, not the one before: late wake-ups must not add up.
            await asyncio.sleep(max(0.0, started_s + arrival_s - time.perf_counter()))
            group.create_task(in_slot(index))
