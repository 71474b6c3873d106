"""Pages leave the GPU and come back as they were, and no token of any answer changes."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from pegainfer_qwen3.config import plan_qwen3
from pegainfer_qwen3.engine import launch

from pegainfer_core.backend import DType, KvLayout
from pegainfer_core.contract import Finished, SamplingParams, Scheduled, Tokens
from pegainfer_core.engine import EngineClient
from pegainfer_core.offload import Worth
from plugins.pegainfer_qwen3.tests.stepper import launch_context
from tests.hf import cases

if TYPE_CHECKING:
    from pathlib import Path

    from pegainfer_core.backend import CopyTicket
    from pegainfer_core.backend.cuda import CudaBackend

pytestmark = pytest.mark.gpu

LAYOUT = KvLayout(num_layers=4, num_kv_heads=8, head_dim=128, page_tokens=16, dtype=DType.BFLOAT16)
SLOT_BYTES = LAYOUT.page_bytes + 4096
NUM_PAGES = 64
CASE = "gqa5"
GREEDY = SamplingParams(temperature=0, max_tokens=24)
TIMEOUT_S = 60


def wait(ticket: CopyTicket) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not ticket.done():
        assert time.monotonic() < deadline_s
        time.sleep(1e-4)


@pytest.mark.parametrize("batches", [True, False])
def test_a_byte_pattern_comes_back(batches: bool, cuda: CudaBackend) -> None:
    """K08, unit: fill pages with a known pattern, offload, overwrite, restore elsewhere."""
    from pegainfer_core.backend.cuda.arrays import address
    from pegainfer_core.backend.cuda.cuda_page_mover import CudaPageMover
    from pegainfer_core.backend.cuda.device import host_address

    kv = cuda.kv_pool(LAYOUT, NUM_PAGES)
    mover = CudaPageMover(cuda.device, kv, batches=batches)
    mover.open()
    rng = np.random.default_rng(0)
    content = rng.integers(0, 256, (NUM_PAGES + 1, LAYOUT.page_bytes), dtype=np.uint8)
    cuda.device.upload(address(kv.pages), host_address(content), content.nbytes)
    cuda.device.synchronize()
    slab = mover.slab(NUM_PAGES * SLOT_BYTES)
    # A run of neighbours, and the others anyhow.
    sources = [*range(1, 17), *rng.permutation(np.arange(17, NUM_PAGES + 1)).tolist()]
    targets = [*range(17, 33), *rng.permutation([*range(1, 17), *range(33, 65)]).tolist()]
    addresses = [slab.address + i * SLOT_BYTES for i in range(NUM_PAGES)]

    wait(mover.save(sources, addresses))
    cuda.device.fill(address(kv.pages), 0xEE, kv.num_pages * LAYOUT.page_bytes)
    wait(mover.load(addresses, targets, mover.fence()))

    found = np.empty_like(content)
    cuda.device.download(host_address(found), address(kv.pages), found.nbytes)
    cuda.device.synchronize()
    for source, target in zip(sources, targets, strict=True):
        np.testing.assert_array_equal(found[target], content[source])
    assert (found[0] == 0xEE).all()
    mover.close()


def test_a_load_comes_after_the_steps_before_it(cuda: CudaBackend) -> None:
    """Pages handed out while a step that still writes them is under way."""
    from pegainfer_core.backend.cuda.arrays import address
    from pegainfer_core.backend.cuda.device import host_address

    large = KvLayout(
        num_layers=36, num_kv_heads=8, head_dim=128, page_tokens=16, dtype=DType.BFLOAT16
    )
    kv = cuda.kv_pool(large, 512)
    mover = cuda.page_mover(kv)
    mover.open()
    slab = mover.slab(large.page_bytes)
    np.frombuffer(slab.memory, np.uint8)[:] = 7
    for _ in range(20):
        for _ in range(20):
            cuda.device.fill(address(kv.pages), 0xEE, kv.num_pages * large.page_bytes)
        wait(mover.load([slab.address], [512], mover.fence()))
        found = np.empty(large.page_bytes, np.uint8)
        where = address(kv.pages) + 512 * large.page_bytes
        cuda.device.download(host_address(found), where, found.nbytes)
        cuda.device.synchronize()
        assert (found == 7).all()
    mover.close()


def test_restored_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuda: CudaBackend
) -> None:
    """From host memory, and from disk after a restart."""
    monkeypatch.setattr(Worth, "pays", lambda self, num_by_source: True)
    folder = cases.build(CASE, tmp_path / CASE)
    prompts = [cases.prompt(CASE, 100 + 30 * i, i).tolist() for i in range(4)]
    context = launch_context(
        folder,
        backend="cuda",
        num_kv_pages=256,
        max_num_seqs=8,
        max_prefill_tokens=96,
        max_model_len=512,
        kv_offload="host,disk",
        kv_offload_host_gib=0.05,
        kv_offload_disk_path=str(tmp_path / "kv"),
        kv_offload_disk_gib=1.0,
    )

    async def answer(client: EngineClient, prompt: list[int]) -> tuple[list[int], int]:
        events = [event async for event in client.submit(prompt, GREEDY)]
        assert isinstance(events[-1], Finished), events[-1]
        cached = next(e.cached_tokens for e in events if isinstance(e, Scheduled))
        return [i for e in events if isinstance(e, Tokens) for i in e.token_ids], cached

    async def rounds(device_only: list[bool]) -> list[list[tuple[list[int], int]]]:
        client = EngineClient(engine)
        while not engine.metrics().kv_offload.tiers[0].capacity_bytes:
            await asyncio.sleep(0.1)  # it is pinned while the engine already serves
        found = []
        for keeps_host in device_only:
            found.append([await answer(client, prompt) for prompt in prompts])
            client.reset_prefix_cache(device_only=keeps_host)
        # And side by side.
        found.append(list(await asyncio.gather(*(answer(client, p) for p in prompts))))
        return found

    whole = [(len(prompt) - 1) // 16 * 16 for prompt in prompts]
    engine = launch(context, plan_qwen3(context))
    try:
        cold, *warm = asyncio.run(asyncio.wait_for(rounds([True, True]), TIMEOUT_S))
    finally:
        engine.close()
    assert [cached for _, cached in cold] == [0] * 4
    for found in warm:
        assert found == [(ids, n) for (ids, _), n in zip(cold, whole, strict=True)]
    engine = launch(context, plan_qwen3(context))
    try:
        found = asyncio.run(asyncio.wait_for(rounds([]), TIMEOUT_S))
    finally:
        engine.close()
    assert found[0] == [(ids, n) for (ids, _), n in zip(cold, whole, strict=True)]
