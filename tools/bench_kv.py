"""Print what KV bookkeeping and scheduling cost the engine thread, without any model.

Run as `python tools/bench_kv.py`; each figure is the best of its repeats.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from pegainfer_qwen3.scheduler import Qwen3Scheduler

from pegainfer_core.contract import GenerateRequest, SamplingParams, ServePlan
from pegainfer_core.engine import DoneStep, LaunchedStep, Ledger, RowResult, Sequence, StepPlan
from pegainfer_core.kv import KvManager

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = 256
PAGE_TOKENS = 16
PROMPT_TOKENS = 128 * 1024
VOCAB_SIZE = 150_000


class NullRunner:
    """Chooses a token for every row without computing anything."""

    def launch(self, plan: StepPlan) -> LaunchedStep:
        """One token for each row."""
        result = RowResult(7)
        return DoneStep([result] * len(plan.rows))

    def raise_if_lost(self) -> None:
        """There is no device."""

    def forget(self, request_id: int) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing to release."""


def best_s(function: Callable[[], None], repeats: int) -> float:
    """Shortest run time."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
    return min(times)


def request(request_id: int, prompt: list[int], max_tokens: int) -> GenerateRequest:
    params = SamplingParams(max_tokens=max_tokens)
    return GenerateRequest(request_id=request_id, prompt_token_ids=prompt, params=params)


def random_prompt(rng: random.Random, num_tokens: int) -> list[int]:
    return [rng.randrange(VOCAB_SIZE) for _ in range(num_tokens)]


def bench_decode_bookkeeping(prefix_cache: bool) -> float:
    """Pages and hashes of one decode step; a sixteenth of the rows cross a page border."""
    kv = KvManager(60_000, PAGE_TOKENS, prefix_cache=prefix_cache)
    rng = random.Random(0)
    sequences = []
    for index in range(BATCH):
        sequence = Sequence(
            request(index, random_prompt(rng, 512 + index % PAGE_TOKENS), 1000), 1000
        )
        sequence.chain = kv.new_chain()
        num_tokens = len(sequence.token_ids)
        kv.admit(sequence, reserve_tokens=num_tokens, room_tokens=num_tokens)
        kv.grow(sequence, num_tokens)
        sequence.num_computed = sequence.num_completed = num_tokens
        kv.commit([sequence])
        sequences.append(sequence)
    steps_s = []
    for _ in range(640):
        for sequence in sequences:
            sequence.token_ids.append(7)
        started = time.perf_counter()
        for sequence in kv.lacking_page(sequences):
            kv.grow(sequence, sequence.num_computed + 1)
        spent_s = time.perf_counter() - started
        for sequence in sequences:
            sequence.num_computed += 1
            sequence.num_completed += 1
        started = time.perf_counter()
        kv.commit(sequences)
        steps_s.append(spent_s + time.perf_counter() - started)
    return min(steps_s)


def bench_scheduler_step() -> float:
    """A whole decode step of the scheduler, ledger and frame included, model excluded."""
    plan = ServePlan(
        max_model_len=8192,
        vocab_size=VOCAB_SIZE,
        backend="none",
        page_tokens=PAGE_TOKENS,
        num_pages=60_000,
        max_num_seqs=BATCH,
        max_prefill_tokens=8192,
    )
    scheduler = Qwen3Scheduler(NullRunner(), KvManager(60_000, PAGE_TOKENS), plan)
    ledger = Ledger()
    rng = random.Random(0)
    for index in range(BATCH):
        new = request(index, random_prompt(rng, 512 + index % PAGE_TOKENS), 4000)
        ledger.open(new)
        scheduler.submit(new, ledger)
    while scheduler.metrics().num_running < BATCH or ledger.generation_tokens < 2 * BATCH:
        scheduler.step(ledger)
        ledger.take_frame()

    def step() -> None:
        scheduler.step(ledger)
        ledger.take_frame()

    return best_s(step, 640)


def bench_long_prompt() -> dict[str, float]:
    """Hashing and matching one prompt of 128k tokens."""
    prompt = random_prompt(random.Random(0), PROMPT_TOKENS)
    num_blocks = PROMPT_TOKENS // PAGE_TOKENS
    kv = KvManager(num_blocks + 100, PAGE_TOKENS)

    def admitted(token_ids: list[int]) -> Sequence:
        sequence = Sequence(request(0, token_ids, 1), 1, chain=kv.new_chain())
        num_tokens = len(token_ids)
        kv.admit(sequence, reserve_tokens=num_tokens, room_tokens=num_tokens)
        return sequence

    def hash_all() -> None:
        chain = kv.new_chain()
        if chain is not None:
            chain.extend(prompt, num_blocks)

    figures = {"hash a 128k prompt": best_s(hash_all, 10)}
    figures["admit it when nobody has seen it"] = best_s(lambda: kv.release(admitted(prompt)), 10)
    sequence = admitted(prompt)
    kv.grow(sequence, PROMPT_TOKENS)
    sequence.num_computed = sequence.num_completed = PROMPT_TOKENS
    started = time.perf_counter()
    kv.commit([sequence])
    figures["hash and publish all its pages"] = time.perf_counter() - started
    started = time.perf_counter()
    kv.release(sequence)
    figures["release them"] = time.perf_counter() - started
    next_turn = [*prompt, *range(100)]
    figures["admit and release the next turn"] = best_s(lambda: kv.release(admitted(next_turn)), 10)
    return figures


def main() -> None:
    """Print all figures."""
    for prefix_cache in (True, False):
        spent_us = bench_decode_bookkeeping(prefix_cache) * 1e6
        label = "with" if prefix_cache else "without"
        print(f"KV bookkeeping of a decode step, batch {BATCH}, {label} cache: {spent_us:.0f} us")
    print(f"whole scheduler step, batch {BATCH}: {bench_scheduler_step() * 1e6:.0f} us")
    for label, spent_s in bench_long_prompt().items():
        print(f"{label}: {spent_s * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
