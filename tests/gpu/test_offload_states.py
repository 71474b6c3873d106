"""States leave the GPU and come back as they were, with their pages, and no token changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from pegainfer_qwen35.config import plan_qwen35
from pegainfer_qwen35.engine import launch

from pegainfer_core.backend import DType, StateLayout
from pegainfer_core.contract import SamplingParams
from pegainfer_core.offload import Worth
from pegainfer_core.testing.conformance.session import Session
from plugins.pegainfer_qwen35.tests.stepper import launch_context
from tests.gpu.test_offload import wait
from tests.hf import cases

if TYPE_CHECKING:
    from pathlib import Path

    from pegainfer_core.backend.cuda import CudaBackend
    from pegainfer_core.contract import LaunchContext

pytestmark = pytest.mark.gpu

LAYOUT = StateLayout(
    num_layers=3,
    num_heads=8,
    key_dim=128,
    value_dim=128,
    conv_width=3072,
    conv_history=3,
    dtype=DType.BFLOAT16,
)
NUM_SLOTS = 12
CASE = "qwen35_ratio3"
GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
TIMEOUT_S = 60


def test_a_byte_pattern_comes_back(cuda: CudaBackend) -> None:
    from pegainfer_core.backend.cuda.arrays import address
    from pegainfer_core.backend.cuda.device import host_address

    states = cuda.state_pool(LAYOUT, NUM_SLOTS)
    mover = cuda.state_mover(states)
    assert mover.slot_bytes == LAYOUT.slot_bytes
    mover.open()
    rng = np.random.default_rng(0)
    parts = [states.memory, states.conv]
    sizes = [int(np.prod(p.shape[1:])) * p.dtype.itemsize for p in parts]
    content = [rng.integers(0, 256, (NUM_SLOTS, size), dtype=np.uint8) for size in sizes]
    for part, values in zip(parts, content, strict=True):
        cuda.device.upload(address(part), host_address(values), values.nbytes)
    cuda.device.synchronize()
    record_bytes = LAYOUT.slot_bytes + 4096
    slab = mover.slab(4 * record_bytes)
    sources, targets = [1, 2, 7, 4], [3, 9, 0, 11]
    addresses = [slab.address + i * record_bytes for i in range(4)]

    wait(mover.save(sources, addresses))
    for part, values in zip(parts, content, strict=True):
        cuda.device.fill(address(part), 0xEE, values.nbytes)
    wait(mover.load(addresses, targets, mover.fence()))

    for part, values in zip(parts, content, strict=True):
        found = np.empty_like(values)
        cuda.device.download(host_address(found), address(part), found.nbytes)
        cuda.device.synchronize()
        for source, target in zip(sources, targets, strict=True):
            np.testing.assert_array_equal(found[target], values[source])
        assert (found[[1, 2, 4, 5, 6, 7, 8, 10]] == 0xEE).all()
    mover.close()


def test_restored_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From host memory, to pages that stayed on the device, and from disk after a restart."""
    monkeypatch.setattr(Worth, "is_quicker", lambda self, restore_s, num_tokens: True)
    folder = cases.build(CASE, tmp_path / CASE)
    prompts = [cases.prompt(CASE, 100 + 30 * i, i).tolist() for i in range(4)]
    whole = [(len(prompt) - 1) // 16 * 16 for prompt in prompts]
    context = launch_context(
        folder,
        backend="cuda",
        num_kv_pages=256,
        max_num_seqs=8,
        max_prefill_tokens=96,
        max_model_len=512,
        kv_offload="host,disk",
        kv_offload_host_gib=0.1,
        kv_offload_disk_path=str(tmp_path / "kv"),
        kv_offload_disk_gib=1.0,
    )
    cold = answers(context, prompts, rounds=1)[0]
    assert [cached for _, cached in cold] == [0] * 4
    for found in answers(context, prompts, rounds=3):
        assert found == [(ids, count) for (ids, _), count in zip(cold, whole, strict=True)]


def answers(
    context: LaunchContext, prompts: list[list[int]], rounds: int
) -> list[list[tuple[list[int], int]]]:
    """What an engine writes, and what it took over, before whose rounds the device forgets all."""
    engine = launch(context, plan_qwen35(context))
    try:
        session = Session(engine, TIMEOUT_S)
        session.wait_metrics(
            lambda metrics: (metrics.kv_offload.tiers[0].capacity_bytes or 0) > 0.09 * 2**30,
            "pinned memory",
        )
        found = []
        for _ in range(rounds):
            engine.reset_prefix_cache(device_only=True)
            made = [session.generate(prompt, GREEDY) for prompt in prompts]
            found.append([(answer.token_ids, answer.cached_tokens or 0) for answer in made])
        return found
    finally:
        engine.close()
