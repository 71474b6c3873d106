"""What only echo does: its script, its delays, and the fault it rehearses."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from pegainfer_echo.checkpoint import write_checkpoint
from pegainfer_echo.plugin import EchoFamily

from pegainfer_core.contract import (
    CoreOptions,
    Error,
    LaunchContext,
    SamplingParams,
    TokenEvent,
    Tokens,
)
from pegainfer_core.engine import EngineClient
from pegainfer_core.weights import ConfigError


def context(model_dir: Path, max_model_len: int | None = None, **options: object) -> LaunchContext:
    write_checkpoint(model_dir)
    return LaunchContext(
        model_dir=str(model_dir),
        family="echo",
        entry_point="pegainfer_echo.plugin",
        options=CoreOptions(max_model_len=max_model_len),
        family_options=options,  # type: ignore[arg-type]
    )


def ask(model_dir: Path, max_tokens: int, **options: object) -> list[TokenEvent]:
    family = EchoFamily()
    launched = context(model_dir, **options)
    handle = family.launch(launched, family.plan(launched))

    async def main() -> list[TokenEvent]:
        client = EngineClient(handle)
        events = [e async for e in client.submit([7, 8], SamplingParams(max_tokens=max_tokens))]
        await client.close()
        return events

    return asyncio.run(main())


def token_ids(events: list[TokenEvent]) -> list[int]:
    return [i for event in events if isinstance(event, Tokens) for i in event.token_ids]


def test_it_repeats_the_prompt(tmp_path: Path) -> None:
    assert token_ids(ask(tmp_path, 5)) == [7, 8, 7, 8, 7]


def test_it_plays_a_script(tmp_path: Path) -> None:
    assert bytes(token_ids(ask(tmp_path, 7, echo_script="hé!"))) == "hé!hé".encode()


def test_delays_are_kept(tmp_path: Path) -> None:
    started_s = time.monotonic()
    ask(tmp_path, 4, echo_prefill_ms=30.0, echo_decode_ms=10.0)
    assert time.monotonic() - started_s >= 0.06


def test_the_rehearsed_fault_fails_the_request(tmp_path: Path) -> None:
    events = ask(tmp_path, 9, echo_fail_after=3)
    assert token_ids(events) == [7, 8]
    assert isinstance(events[-1], Error) and "asked to fail in step 3" in events[-1].message


@pytest.mark.parametrize("max_model_len", [1, 5000])
def test_an_impossible_context_is_refused(tmp_path: Path, max_model_len: int) -> None:
    with pytest.raises(
        ConfigError, match=f"--max-model-len {max_model_len} must be from 2 to 4096"
    ):
        EchoFamily().plan(context(tmp_path, max_model_len))
