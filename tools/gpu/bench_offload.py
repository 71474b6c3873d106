"""Measures KV offload with a Qwen3-4B shape on the GPU: `bench_offload.py [--out FILE] [PART ...]`.

Parts: `ttft` (prompts of 1k to 16k tokens cold, from the device's cache, from host memory and from
disk), `copies` (rates of page copies alone), `throughput` (with offload on and nothing to restore,
against off). TTFT is taken inside the process, from submission to the first token.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pegainfer_qwen3.config import plan_qwen3
from pegainfer_qwen3.engine import launch

from pegainfer_core.contract import (
    CoreOptions,
    Finished,
    GenerateRequest,
    LaunchContext,
    SamplingParams,
    Scheduled,
    Tokens,
)
from pegainfer_core.offload import Worth
from tools.gpu.bench_step import QWEN3_4B

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pegainfer_core.contract import KvTierMetrics, StepFrame
    from pegainfer_core.engine import LocalEngine

LENGTHS = (1024, 4096, 16384)
REPEATS = 5
HOST_GIB = 16.0
LOAD_HOST_GIB = 4.0
PAGE_TOKENS = 16
LOAD_PROMPT, LOAD_OUTPUT, LOAD_AT_ONCE, LOAD_REQUESTS = 1024, 128, 64, 192


class Client:
    """Sends requests to an engine and times what comes back."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine
        self._next_id = 1
        self._changed = threading.Condition()
        self._first_s: dict[int, float] = {}
        self._cached: dict[int, int] = {}
        self._ended: set[int] = set()
        self.num_tokens = 0
        engine.connect(self._take)

    def submit(self, prompt: list[int], max_tokens: int) -> int:
        """Send a request and return its id."""
        request_id, self._next_id = self._next_id, self._next_id + 1
        params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
        self.engine.submit(
            GenerateRequest(request_id=request_id, prompt_token_ids=prompt, params=params)
        )
        return request_id

    def ttft_ms(self, prompt: list[int]) -> tuple[float, int]:
        """Of a request alone, with its cached tokens."""
        started = time.perf_counter()
        request_id = self.submit(prompt, 2)
        self.wait({request_id})
        return 1e3 * (self._first_s[request_id] - started), self._cached[request_id]

    def wait(self, request_ids: set[int]) -> None:
        """Until requests have ended."""
        with self._changed:
            self._changed.wait_for(lambda: request_ids <= self._ended, timeout=120)

    def wait_some(self, num_open: int) -> None:
        """Until at most so many requests are open."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._next_id - 1 - len(self._ended) <= num_open, timeout=120
            )

    def tiers(self) -> list[KvTierMetrics]:
        """What the tiers have done."""
        return self.engine.metrics().kv_offload.tiers

    def wait_for_saves(self) -> None:
        """Until no tier has got anything new for a while."""
        before, calm = None, 0
        while calm < 1:
            time.sleep(1.2)  # an idle engine takes metrics once a second
            now = [(tier.num_records, tier.saved_bytes) for tier in self.tiers()]
            calm = calm + 1 if now == before else 0
            before = now

    def _take(self, frame: StepFrame) -> None:
        now = time.perf_counter()
        with self._changed:
            for event in frame.events:
                if isinstance(event, Tokens):
                    self._first_s.setdefault(event.request_id, now)
                    self.num_tokens += len(event.token_ids)
                elif isinstance(event, Scheduled):
                    self._cached[event.request_id] = event.cached_tokens
                elif isinstance(event, Finished):
                    self._ended.add(event.request_id)
            self._changed.notify_all()


def start(folder: Path, **options: object) -> Client:
    """An engine with dummy weights, once its host memory is pinned."""
    (folder / "config.json").write_text(json.dumps(QWEN3_4B))
    core = CoreOptions(load_format="dummy", backend="cuda", max_model_len=20480, **options)  # type: ignore[arg-type]
    context = LaunchContext(
        model_dir=str(folder), family="qwen3", entry_point="pegainfer_qwen3.plugin", options=core
    )
    started = time.perf_counter()
    client = Client(launch(context, plan_qwen3(context)))
    ready_s = time.perf_counter() - started
    wanted = core.kv_offload_host_gib * 2**30 * 0.99 if core.kv_offload else 0
    while wanted and (client.tiers()[0].capacity_bytes or 0) < wanted:
        time.sleep(0.2)
    pinned_s = time.perf_counter() - started - ready_s
    print(f"engine ready in {ready_s:.1f} s, host memory {pinned_s:.1f} s later", flush=True)
    return client


RANDOM = np.random.default_rng(0)


def prompt(num_tokens: int) -> list[int]:
    ids: list[int] = RANDOM.integers(1000, 100_000, num_tokens).tolist()
    return ids


def ladder(folder: Path) -> list[dict[str, object]]:
    """TTFT by length and by where the prefix is."""
    client = start(
        folder,
        kv_offload="host,disk",
        kv_offload_host_gib=HOST_GIB,
        kv_offload_disk_path=str(folder / "kv"),
        kv_offload_disk_gib=24.0,
    )
    for length in LENGTHS:
        client.ttft_ms(prompt(length))
    rows = []
    for length in LENGTHS:
        prompts = [prompt(length) for _ in range(REPEATS)]
        found: dict[str, list[tuple[float, int]]] = {}
        found["cold"] = [client.ttft_ms(ids) for ids in prompts]
        found["device"] = [client.ttft_ms(ids) for ids in prompts]
        client.wait_for_saves()
        for source, device_only in (("host", True), ("disk", False)):
            before = client.tiers()
            client.engine.reset_prefix_cache(device_only=device_only)
            with all_restored():
                found[source] = [client.ttft_ms(ids) for ids in prompts]
            time.sleep(1.2)
            rates(source, before, client.tiers())
        for source, taken in found.items():
            times = [ttft for ttft, _ in taken]
            row: dict[str, object] = {
                "tokens": length,
                "from": source,
                "ttft_ms": round(statistics.median(times), 2),
                "best_ms": round(min(times), 2),
                "cached": [cached for _, cached in taken],
            }
            rows.append(row)
            print(row, flush=True)
    print(client.engine.metrics().kv_offload, flush=True)
    client.engine.close()
    return rows


@contextmanager
def all_restored() -> Iterator[None]:
    """Restore also where computing is quicker: what it takes is to be measured."""
    pays, patience_s = Worth.pays, Worth.patience_s
    Worth.pays = lambda self, num_by_source: True  # type: ignore[method-assign]
    Worth.patience_s = lambda self, num_pages: 60.0  # type: ignore[method-assign]
    try:
        yield
    finally:
        Worth.pays, Worth.patience_s = pays, patience_s  # type: ignore[method-assign]


def rates(source: str, before: list[KvTierMetrics], after: list[KvTierMetrics]) -> None:
    """Print what each tier gave meanwhile."""
    for old, new in zip(before, after, strict=True):
        num_bytes, taken_s = new.loaded_bytes - old.loaded_bytes, new.load_s - old.load_s
        if num_bytes:
            rate = num_bytes / taken_s / 1e9
            print(f"  from {source}: {new.name} {num_bytes / 1e9:.2f} GB at {rate:.1f} GB/s")


def copies() -> list[dict[str, object]]:
    """GB/s of page copies alone, in one call of the driver and in one a run."""
    from pegainfer_core.backend import DType, KvLayout
    from pegainfer_core.backend.cuda import CudaBackend
    from pegainfer_core.backend.cuda.cuda_page_mover import CudaPageMover

    layout = KvLayout(
        num_layers=36, num_kv_heads=8, head_dim=128, page_tokens=PAGE_TOKENS, dtype=DType.BFLOAT16
    )
    backend, count, rows = CudaBackend(), 1024, []
    kv = backend.kv_pool(layout, count)
    for batches in (True, False):
        mover = CudaPageMover(backend.device, kv, batches=batches)
        mover.open()
        stride = layout.page_bytes + 4096
        slab = mover.slab(count * stride)
        pages = RANDOM.permutation(np.arange(1, count + 1)).tolist()
        addresses = [slab.address + i * stride for i in range(count)]
        for name in ("save", "load", "save", "load"):
            started = time.perf_counter()
            if name == "save":
                ticket = mover.save(pages, addresses)
            else:
                ticket = mover.load(addresses, pages, None)
            submitted = time.perf_counter()
            while not ticket.done():
                time.sleep(1e-4)
            seconds = time.perf_counter() - started
            row: dict[str, object] = {
                "copy": name,
                "one call": batches,
                "gb_s": round(count * layout.page_bytes / seconds / 1e9, 1),
                "submit_ms": round(1e3 * (submitted - started), 2),
            }
            rows.append(row)
            print(row, flush=True)
        mover.close()
    return rows


def throughput(folder: Path) -> list[dict[str, object]]:
    """Output tokens a second, new prompts only."""
    rows = []
    for offload in (None, "host", None, "host"):
        client = start(folder, kv_offload=offload, kv_offload_host_gib=LOAD_HOST_GIB)
        jobs = [prompt(LOAD_PROMPT) for _ in range(LOAD_REQUESTS + LOAD_AT_ONCE)]
        for ids in jobs[:LOAD_AT_ONCE]:
            client.submit(ids, LOAD_OUTPUT)
        client.wait_some(0)
        started, before = time.perf_counter(), client.num_tokens
        for ids in jobs[LOAD_AT_ONCE:]:
            client.submit(ids, LOAD_OUTPUT)
            client.wait_some(LOAD_AT_ONCE - 1)
        client.wait_some(0)
        rate = (client.num_tokens - before) / (time.perf_counter() - started)
        saved = client.tiers()[0].saved_bytes if offload else 0
        row: dict[str, object] = {
            "offload": offload or "off",
            "tokens_s": round(rate, 1),
            "saved_gb": round(saved / 1e9, 1),
        }
        rows.append(row)
        print(row, flush=True)
        client.engine.close()
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["copies", "ttft", "throughput"])
    parser.add_argument("--out", type=Path, help="JSON of all rows")
    args = parser.parse_args()
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        for part in args.parts:
            if part == "copies":
                found[part] = copies()
            elif part == "ttft":
                found[part] = ladder(Path(folder))
            else:
                found[part] = throughput(Path(folder))
            if args.out:
                args.out.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
