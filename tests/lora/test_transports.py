"""Adapters of an engine in a process of its own, and of one that takes none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pegainfer_qwen3.plugin import Qwen3Family

from pegainfer_core.contract import (
    AdapterError,
    AdapterProblem,
    CoreOptions,
    EngineError,
    LaunchContext,
    Rejected,
    SamplingParams,
    Tokens,
    UnknownLora,
    Unsupported,
)
from pegainfer_core.engine import EngineClient, ProcessEngine
from pegainfer_core.testing.tiny import tiny_adapter, tiny_qwen3

PARAMS = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
PROMPT = list(range(9))


def launch_context(model: Path, **options: object) -> LaunchContext:
    core = CoreOptions(backend="numpy", max_num_seqs=4, num_kv_pages=64, **options)  # type: ignore[arg-type]
    return LaunchContext(
        model_dir=str(model), family="qwen3", entry_point="pegainfer_qwen3.plugin", options=core
    )


async def answer(client: EngineClient, lora: str | None) -> list[int]:
    events = [event async for event in client.submit(PROMPT, PARAMS, lora=lora)]
    if isinstance(events[-1], Rejected):
        assert events[-1].reason == UnknownLora(name=lora or "")
        return []
    return [i for event in events if isinstance(event, Tokens) for i in event.token_ids]


def test_in_a_process_of_its_own(tmp_path: Path) -> None:
    model = tiny_qwen3(tmp_path / "model", hidden=64, intermediate=64, seed=1)
    x, y = (tiny_adapter(tmp_path / name, model, seed=len(name)) for name in ("x", "yy"))
    context = launch_context(model, lora=[f"x={x}"], max_loras=2)
    made = ProcessEngine(context, Qwen3Family().plan(context))

    async def use() -> None:
        client = EngineClient(made)
        assert [each.name for each in client.adapters()] == ["x"]
        base, first = await answer(client, None), await answer(client, "x")
        assert await answer(client, "y") == []
        info = await client.load_adapter("y", str(y))
        assert (info.name, info.rank, info.path) == ("y", 4, str(y))
        assert [each.name for each in client.adapters()] == ["x", "y"]
        assert len({tuple(found) for found in (base, first, await answer(client, "y"))}) == 3
        with pytest.raises(AdapterError, match="slots are in use") as caught:
            await client.load_adapter("z", str(y))
        assert caught.value.problem is AdapterProblem.CONFLICT
        await client.unload_adapter("y")
        with pytest.raises(AdapterError, match="'y'") as caught:
            await client.unload_adapter("y")
        assert caught.value.problem is AdapterProblem.UNKNOWN
        # Whoever gives up waiting stops nothing.
        load = asyncio.ensure_future(client.load_adapter("y", str(y)))
        await asyncio.sleep(0)
        load.cancel()
        while len(client.adapters()) < 2:
            await asyncio.sleep(0.01)
        made._process.kill()
        with pytest.raises(EngineError):
            await client.load_adapter("z", str(x))
        with pytest.raises(EngineError):
            await client.unload_adapter("y")

    try:
        asyncio.run(asyncio.wait_for(use(), 60))
    finally:
        made.close()


def test_without_lora(tmp_path: Path) -> None:
    model = tiny_qwen3(tmp_path / "model", hidden=64, intermediate=64)
    context = launch_context(model)
    made = Qwen3Family().launch(context, Qwen3Family().plan(context))

    async def use() -> None:
        client = EngineClient(made)
        assert client.adapters() == []
        for change in (client.load_adapter("x", "nowhere"), client.unload_adapter("x")):
            with pytest.raises(AdapterError, match="no LoRA adapters") as caught:
                await change
            assert caught.value.problem is AdapterProblem.INVALID
        (event,) = [event async for event in client.submit(PROMPT, PARAMS, lora="x")]
        assert isinstance(event, Rejected) and event.reason == Unsupported(field="lora")

    try:
        asyncio.run(asyncio.wait_for(use(), 60))
    finally:
        made.close()
