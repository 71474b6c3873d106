"""What goes wrong on a GPU: lost devices, full memory, damaged kernels. One clear line each."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from typing import TYPE_CHECKING

import pytest
from pegainfer_qwen3.config import plan_qwen3

from pegainfer_core.contract import (
    EngineError,
    Error,
    Finished,
    HealthState,
    LaunchContext,
    SamplingParams,
    TokenEvent,
)
from pegainfer_core.engine import EngineClient, ProcessEngine
from pegainfer_core.weights import ConfigError
from plugins.pegainfer_qwen3.tests.stepper import Stepper, launch_context
from tests.gpu.faulty_qwen3 import BREAKS_THE_DEVICE, RAISES
from tests.hf import cases

if TYPE_CHECKING:
    from pathlib import Path

    from pegainfer_core.backend.cuda import CudaBackend
    from pegainfer_core.engine import RequestStream

pytestmark = pytest.mark.gpu

LONG = SamplingParams(temperature=0, max_tokens=400)
EXIT_S = 15
SLACK_BYTES = 128 << 20
ROOM_TO_LOOK_BYTES = 960 << 20
"""More than a context takes, less than a context and what an engine leaves free."""


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cases.build("bf16", tmp_path_factory.mktemp("faults") / "bf16")


def start(
    model_dir: Path, entry_point: str = "pegainfer_qwen3.plugin", **options: object
) -> ProcessEngine:
    defaults = {"backend": "cuda", "num_kv_pages": 512, "max_model_len": 512}
    made = launch_context(model_dir, **(defaults | options))
    context = LaunchContext(
        model_dir=made.model_dir,
        family="faulty" if "faulty" in entry_point else "qwen3",
        entry_point=entry_point,
        options=made.options,
    )
    return ProcessEngine(context, plan_qwen3(context))


def start_faulty(model_dir: Path) -> ProcessEngine:
    return start(model_dir, "tests.gpu.faulty_qwen3")


async def answer(client: EngineClient, first: int) -> list[TokenEvent]:
    return [event async for event in client.submit([first, 1, 2], LONG)]


async def _rest(stream: RequestStream) -> list[TokenEvent]:
    return [event async for event in stream]


def test_a_step_that_raises_fails_its_requests_only(model_dir: Path) -> None:
    engine = start_faulty(model_dir)

    async def main() -> None:
        client = EngineClient(engine)
        *_, before = await answer(client, 1)
        *_, failed = await answer(client, RAISES)
        assert isinstance(failed, Error) and "asked to fail" in failed.message
        *_, after = await answer(client, 1)
        assert isinstance(before, Finished) and isinstance(after, Finished)
        assert client.health().state is HealthState.READY

    try:
        asyncio.run(asyncio.wait_for(main(), EXIT_S))
    finally:
        engine.close()


def test_a_lost_device_ends_the_engine_and_frees_the_gpu(
    model_dir: Path, cuda: CudaBackend
) -> None:
    free_before, _ = cuda.device.memory()
    engine = start_faulty(model_dir)
    pid = engine.info.pid
    assert cuda.device.memory()[0] < free_before

    async def main() -> None:
        client = EngineClient(engine)
        first = client.submit([1, 1, 2], LONG)
        events = await first.next_events()
        assert not any(isinstance(event, Error) for event in events), events
        asked = [answer(client, first) for first in (2, 3, BREAKS_THE_DEVICE)]
        answers = await asyncio.gather(_rest(first), *asked)
        for *_, last in answers:
            assert isinstance(last, Error), last
            assert "cannot be used any more: CUDA_ERROR_ILLEGAL_ADDRESS (700)" in last.message
        while client.health().state is HealthState.READY:
            await asyncio.sleep(0.05)
        assert "CUDA_ERROR_ILLEGAL_ADDRESS" in client.health().detail
        with pytest.raises(EngineError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
            client.submit([1], LONG)

    try:
        asyncio.run(asyncio.wait_for(main(), EXIT_S))
    except BaseException:
        engine.close()
        raise
    deadline_s = time.monotonic() + EXIT_S
    while engine._process.poll() is None and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert engine._process.returncode == 1
    engine.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    while cuda.device.memory()[0] < free_before - SLACK_BYTES:
        assert time.monotonic() < deadline_s, "the memory is still taken"
        time.sleep(0.05)


def test_a_second_engine_on_a_full_gpu_names_the_numbers(
    model_dir: Path, cuda: CudaBackend
) -> None:
    first = start(model_dir, num_kv_pages=None, gpu_memory_utilization=0.9)
    free, _ = cuda.device.memory()
    rest = cuda.device.allocate(free - ROOM_TO_LOOK_BYTES)
    try:
        words = (
            r"GPU 0 \(.*\): of [0-9.]+ GiB, [0-9.]+ GiB were in use before this engine started and "
            r"[0-9.]+ GiB are its own; --gpu-memory-utilization 0\.8 allows it [0-9.]+ GiB, and "
            r"[0-9.]+ GiB are free.*nvidia-smi"
        )
        with pytest.raises(ConfigError, match=words) as caught:
            start(model_dir, num_kv_pages=None, gpu_memory_utilization=0.8)
        assert "\n" not in str(caught.value)
    finally:
        del rest
        first.close()


def test_engines_share_a_gpu(model_dir: Path, cuda: CudaBackend) -> None:
    """Case O03c: a share is of all memory, whoever holds the rest; what is free bounds it."""
    free, total = cuda.device.memory()
    first = start(model_dir, num_kv_pages=None, gpu_memory_utilization=0.3)
    second = start(model_dir, num_kv_pages=None, gpu_memory_utilization=0.3)
    try:
        assert abs(first.info.num_pages - second.info.num_pages) < 0.05 * first.info.num_pages
        with pytest.raises(ConfigError, match=r"KV pages need [0-9.]+ GiB.*--num-kv-pages"):
            start(model_dir, num_kv_pages=100_000_000)
        third = start(model_dir, num_kv_pages=None, gpu_memory_utilization=0.98)
        third.close()
        share = third.info.num_pages / first.info.num_pages
        assert 0.8 * (free - 0.6 * total) < share * 0.3 * total < free - 0.6 * total
    finally:
        first.close()
        second.close()


def test_nearly_all_of_a_gpu_leaves_room_for_recordings(model_dir: Path) -> None:
    """Case O03f."""
    engine = start(model_dir, num_kv_pages=None, gpu_memory_utilization=0.98)

    async def main() -> None:
        client = EngineClient(engine)
        for *_, last in await asyncio.gather(*(answer(client, first) for first in range(1, 9))):
            assert isinstance(last, Finished), last

    try:
        asyncio.run(asyncio.wait_for(main(), EXIT_S))
    finally:
        engine.close()


def test_weights_larger_than_the_gpu_are_refused_before_they_are_made(tmp_path: Path) -> None:
    """Case O03e, on a device."""
    from pegainfer_core.testing.tiny import edit_config

    folder = cases.build("bf16", tmp_path / "large")
    sizes = {"hidden_size": 16_384, "intermediate_size": 65_536, "num_hidden_layers": 400}
    edit_config(folder, lambda config: config.update(sizes))
    with pytest.raises(ConfigError, match=r"the weights need [0-9.]+ GiB, but only [0-9.]+ GiB of"):
        start(folder, load_format="dummy")


def test_an_allocation_that_fails_names_the_numbers(cuda: CudaBackend) -> None:
    words = r"1,048,576 MiB were asked for, .* MiB are free.*--gpu-memory-utilization"
    with pytest.raises(ConfigError, match=words):
        cuda.device.allocate(1 << 40)
    cuda.raise_if_lost()


def test_steps_run_unrecorded_when_there_is_no_memory_to_record_them(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from pegainfer_core.backend.cuda import CudaBackend
    from pegainfer_core.backend.cuda.errors import DeviceMemoryError

    prompts = [cases.prompt("bf16", 5 + i, 0).tolist() for i in range(3)]
    backend = CudaBackend()
    expected = Stepper(model_dir, backend=backend, num_kv_pages=64).generate(prompts, 12)

    def no_memory(work: object) -> None:
        raise DeviceMemoryError("recording a step failed: cudaErrorMemoryAllocation")

    monkeypatch.setattr(backend.device, "record", no_memory)
    with caplog.at_level(logging.WARNING):
        found = Stepper(model_dir, backend=backend, num_kv_pages=64).generate(prompts, 12)
    assert found == expected
    (line,) = [record.getMessage() for record in caplog.records]
    assert "no memory to record steps of 1 rows" in line and "--no-cuda-graph" in line


def test_a_damaged_cubin_is_built_again(
    cuda: CudaBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from pegainfer_core.backend.cuda.library import KernelLibrary
    from pegainfer_core.kernels import KernelCache, catalog, default_cache_dir

    spec = catalog.fill_quantiles("fp32")
    cuda.library.get(spec)
    _copy_one(KernelCache(default_cache_dir()), spec, cuda.device.arch, tmp_path)
    (cubin,) = tmp_path.glob("*.cubin")
    cubin.write_bytes(cubin.read_bytes()[:1000])
    with caplog.at_level(logging.WARNING):
        KernelLibrary(cuda.device.arch, KernelCache(tmp_path)).get(spec)
    assert f"{cubin.name}: is damaged" in caplog.text
    # It may have another name: compilers of two versions do not write the same bytes.
    _, code = KernelCache(tmp_path).load(spec, cuda.device.arch)
    assert len(code) > 1000


def _copy_one(cache: object, spec: object, arch: int, folder: Path) -> None:
    """A cache of one kernel."""
    from pegainfer_core.kernels import KernelCache

    assert isinstance(cache, KernelCache)
    shutil.rmtree(folder)
    entry, code = cache.load(spec, arch)  # type: ignore[arg-type]
    KernelCache(folder).store(entry, code)
