"""An engine in this process, and batches of requests timed on it. Knows no dataset."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, NamedTuple

from pegainfer_core.contract import Error, Finished, Rejected, SamplingParams, Tokens
from pegainfer_core.engine import EngineClient
from pegainfer_core.plugin import CommandFault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from pegainfer_core.contract import ServePlan
    from pegainfer_core.plugin import PreparedLaunch


class OfflineRequest(NamedTuple):
    """Ids of a prompt, and how many tokens to generate."""

    token_ids: list[int]
    output_tokens: int


class BatchTimes(NamedTuple):
    """What a batch took.

    Attributes:
        duration_s: From the first submission to the last terminal.
        first_token_s: Until every request had a token.
        output_tokens: Generated in all.
    """

    duration_s: float
    first_token_s: float
    output_tokens: int


def check_lengths(requests: Sequence[OfflineRequest], plan: ServePlan, advice: str) -> None:
    """Refuse what the engine would refuse, before it is started.

    Raises:
        CommandFault: A request is longer than the model takes.
    """
    for number, request in enumerate(requests, 1):
        tokens = len(request.token_ids) + request.output_tokens
        if tokens > plan.max_model_len:
            raise CommandFault(
                f"request {number} has {len(request.token_ids)} prompt and "
                f"{request.output_tokens} output tokens, more than the {plan.max_model_len} "
                f"of this model; {advice}"
            )


@contextlib.asynccontextmanager
async def offline_engine(launch: PreparedLaunch) -> AsyncIterator[EngineClient]:
    """Start the engine, as the offline API does, and stop it at the end.

    Raises:
        EngineError: It could not start.
    """
    handle = launch.family.launch(launch.context, launch.plan)
    hooks = launch.host.hooks
    try:
        hooks.engine_ready(handle, launch.family, launch.plan)
        yield EngineClient(handle)
        hooks.engine_stopping(handle)
    finally:
        await asyncio.to_thread(handle.close)


async def time_batch(
    client: EngineClient,
    requests: Sequence[OfflineRequest],
    on_end: Callable[[], None] = lambda: None,
) -> BatchTimes:
    """Submit requests at once, greedy and at full length, and wait for all of them.

    Raises:
        CommandFault: The engine refused or failed one, or gave it fewer tokens.
    """

    async def one(request: OfflineRequest) -> float:
        params = SamplingParams(max_tokens=request.output_tokens, temperature=0.0, ignore_eos=True)
        stream = client.submit(request.token_ids, params)
        first_s: float | None = None
        async for event in stream:
            if isinstance(event, Tokens) and first_s is None:
                first_s = time.perf_counter()
            elif isinstance(event, Rejected):
                raise CommandFault(f"the engine refused a request: {event.reason}")
            elif isinstance(event, Error):
                raise CommandFault(f"the engine failed: {event.message}")
            elif isinstance(event, Finished) and event.completion_tokens < request.output_tokens:
                raise CommandFault(
                    f"the engine generated {event.completion_tokens} of "
                    f"{request.output_tokens} tokens ({event.reason})"
                )
        on_end()
        assert first_s is not None
        return first_s

    started_s = time.perf_counter()
    firsts_s = await asyncio.gather(*map(one, requests))
    duration_s = time.perf_counter() - started_s
    output_tokens = sum(request.output_tokens for request in requests)
    return BatchTimes(duration_s, max(firsts_s) - started_s, output_tokens)
