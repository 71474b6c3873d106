"""Both transports keep the contract: one terminal per request, health, aborts, clean ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from pegainfer_core.contract import (
    ContextLength,
    EngineError,
    EngineHandle,
    Error,
    Finished,
    FinishReason,
    HealthState,
    InvalidParam,
    InvalidToken,
    Rejected,
    SamplingParams,
    Scheduled,
    TokenEvent,
    Tokens,
)
from pegainfer_core.engine import EngineClient

PARAMS = SamplingParams(max_tokens=5)


def token_ids(events: list[TokenEvent]) -> list[int]:
    return [i for event in events if isinstance(event, Tokens) for i in event.token_ids]


def run(handle: EngineHandle, use: Callable[[EngineClient], Awaitable[None]]) -> None:
    async def main() -> None:
        await use(EngineClient(handle))

    asyncio.run(main())


def test_a_request_gets_scheduled_tokens_and_one_terminal(start_echo) -> None:
    async def use(client: EngineClient) -> None:
        events = [e async for e in client.submit([7, 8, 9], PARAMS)]
        assert isinstance(events[0], Scheduled)
        assert events[0].prompt_tokens == 3
        assert token_ids(events) == [7, 8, 9, 7, 8]
        assert events[-1] == Finished(events[0].request_id, FinishReason.LENGTH, 3, 5)
        assert client.num_open == 0

    run(start_echo(), use)


def test_a_stop_token_is_named_and_counted_but_not_sent(start_echo) -> None:
    async def use(client: EngineClient) -> None:
        events = [e async for e in client.submit([1, 2, 3], PARAMS, eos_token_ids=[3])]
        assert token_ids(events) == [1, 2]
        last = events[-1]
        assert isinstance(last, Finished)
        assert (last.reason, last.stop_token_id, last.completion_tokens) == ("stop", 3, 3)

    run(start_echo(), use)


def test_many_requests_at_once_keep_their_own_answers(start_echo) -> None:
    async def one(client: EngineClient, first: int) -> None:
        stream = client.submit([first, first + 1], SamplingParams(max_tokens=50))
        events = [e async for e in stream]
        assert token_ids(events) == [first, first + 1] * 25
        assert isinstance(events[-1], Finished)

    async def use(client: EngineClient) -> None:
        await asyncio.gather(*(one(client, 2 * i) for i in range(300)))
        assert client.metrics().num_running == 0
        assert client.metrics().num_finished_length == 300

    run(start_echo(), use)


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "reason"),
    [
        ([1, 1024], 1, InvalidToken(token_id=1024, vocab_size=1024)),
        ([1, -1], 1, InvalidToken(token_id=-1, vocab_size=1024)),
        (
            [1],
            100_000,
            ContextLength(prompt_tokens=1, max_tokens=100_000, limit_tokens=100_000),
        ),
    ],
)
def test_an_impossible_request_is_rejected_alone(start_echo, prompt, max_tokens, reason) -> None:
    async def use(client: EngineClient) -> None:
        good = client.submit([5], PARAMS)
        bad = client.submit(prompt, SamplingParams(max_tokens=max_tokens))
        assert [e async for e in bad] == [Rejected(bad.request_id, reason)]
        assert token_ids([e async for e in good]) == [5] * 5

    run(start_echo(), use)


@pytest.mark.parametrize(
    "fields",
    [
        {"top_k": 2**64},
        {"seed": 2**64},
        {"min_tokens": -(2**63) - 1},
        {"logprobs": 2**64},
        {"stop_token_ids": [1, 2**64]},
        {"logit_bias": {2**64: 1.0}},
        {"bad_token_sequences": [[1], [2, 2**64]]},
    ],
)
def test_integers_wider_than_64_bits_are_rejected_alone(start_echo, fields) -> None:
    async def use(client: EngineClient) -> None:
        good = client.submit([5], PARAMS)
        bad = client.submit([5], SamplingParams(**fields))
        reason = InvalidParam(field=next(iter(fields)), problem="must fit 64 bits")
        assert [e async for e in bad] == [Rejected(bad.request_id, reason)]
        wide = client.submit([5], PARAMS, priority=2**64)
        reason = InvalidParam(field="priority", problem="must fit 64 bits")
        assert [e async for e in wide] == [Rejected(wide.request_id, reason)]
        assert token_ids([e async for e in good]) == [5] * 5
        assert client.num_open == 0

    run(start_echo(), use)


def test_abort_ends_a_stream_with_one_terminal(start_echo) -> None:
    async def use(client: EngineClient) -> None:
        stream = client.submit([1], SamplingParams(max_tokens=90_000))
        await stream.next_events()
        stream.abort()
        stream.abort()
        client.abort(123_456)
        events = [e async for e in stream]
        assert isinstance(events[-1], Finished)
        assert events[-1].reason is FinishReason.ABORT
        assert token_ids([e async for e in client.submit([4], PARAMS)]) == [4] * 5
        assert client.metrics().num_aborted == 1

    run(start_echo(echo_decode_ms=1.0), use)


def test_a_fault_in_a_step_fails_what_is_open_and_turns_health_red(start_echo) -> None:
    async def use(client: EngineClient) -> None:
        streams = [client.submit([i + 1], SamplingParams(max_tokens=1000)) for i in range(3)]
        for stream in streams:
            events = [e async for e in stream]
            assert isinstance(events[-1], Error)
            assert "asked to fail in step 4" in events[-1].message
        deadline = time.monotonic() + 20
        while client.health().state is not HealthState.DEAD and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        assert "asked to fail in step 4" in client.health().detail
        with pytest.raises(EngineError, match="asked to fail"):
            client.submit([1], PARAMS)

    run(start_echo(echo_fail_after=4), use)


def test_close_fails_open_requests_and_refuses_new_ones(start_echo) -> None:
    async def use(client: EngineClient) -> None:
        stream = client.submit([1], SamplingParams(max_tokens=90_000))
        await stream.next_events()
        await client.close()
        events = [e async for e in stream]
        assert isinstance(events[-1], Error)
        assert "shut down" in events[-1].message
        with pytest.raises(EngineError, match="shut down"):
            client.submit([1], PARAMS)
        with pytest.raises(EngineError, match="shut down"):
            client.reset_prefix_cache()
        assert client.health().state is HealthState.DEAD

    run(start_echo(echo_decode_ms=1.0), use)


def test_a_reader_that_stops_reading_is_dropped_and_counted(start_echo) -> None:
    async def use(client: EngineClient) -> None:
        slow = client.submit([1], SamplingParams(max_tokens=90_000))
        await slow.next_events()
        slow.writing = True
        while not slow.overflowed:
            await asyncio.sleep(0.01)
        events = [e async for e in slow]
        assert isinstance(events[-1], Finished)
        assert events[-1].reason is FinishReason.ABORT
        assert client.num_slow_readers == 1
        patient = client.submit([1], SamplingParams(max_tokens=9000))
        await asyncio.sleep(0.2)
        assert token_ids([e async for e in patient]) == [1] * 9000

    # At full speed a busy machine lets the engine end the answer before it hears of the abort.
    run(start_echo(echo_decode_ms=0.05), use)
