"""Print what KV bookkeeping and scheduling cost the engine thread, without any model.

Run as `python tools/bench_kv.py`; without another word a figure is the best of its repeats.
"""

from __future__ import annotations

import random
import time
from statistics import mean, median
from typing import TYPE_CHECKING, TypedDict, Unpack

from pegainfer_qwen3.scheduler import Qwen3Scheduler

from pegainfer_core.contract import GenerateRequest, SamplingParams, ServePlan
from pegainfer_core.engine import DoneStep, LaunchedStep, Ledger, RowResult, Sequence, StepPlan
from pegainfer_core.kv import CborBlockHasher, KvEventLog, KvManager, pack_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.kv import BlockHasher, KvEvent

BATCH = 256
PAGE_TOKENS = 16
NUM_PAGES = 60_000
OUTPUT_TOKENS = 512
NUM_STEPS = 1200
PROMPT_TOKENS = 128 * 1024
VOCAB_SIZE = 150_000


class ManagerOptions(TypedDict, total=False):
    """What the manager is varied in."""

    prefix_cache: bool
    hasher: BlockHasher
    events: KvEventLog


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


def best_s(function: Callable[[], object], repeats: int) -> float:
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


class NoCarrier:
    """Takes KV events and forgets them, as the feed does once they are in its queue."""

    num_dropped = 0

    def carry(self, events: list[KvEvent]) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing to release."""


def bench_decode_bookkeeping(**options: Unpack[ManagerOptions]) -> list[float]:
    """Pages and hashes of decode steps; a sixteenth of the rows cross a page border in each.

    Requests end after `OUTPUT_TOKENS` and new ones take their places; releasing is counted,
    admission is not: it belongs to their prefill.
    """
    kv = KvManager(NUM_PAGES, PAGE_TOKENS, **options)
    rng = random.Random(0)

    def start(index: int) -> Sequence:
        prompt = random_prompt(rng, 512 + index % PAGE_TOKENS)
        sequence = Sequence(request(index, prompt, 4000), 4000)
        sequence.chain = kv.new_chain()
        num_tokens = len(prompt)
        kv.admit(sequence, reserve_tokens=num_tokens, room_tokens=num_tokens)
        kv.grow(sequence, num_tokens)
        sequence.num_computed = sequence.num_completed = num_tokens
        kv.commit([sequence])
        return sequence

    sequences = [start(index) for index in range(BATCH)]
    steps_s = []
    for step in range(NUM_STEPS):
        for sequence in sequences:
            sequence.token_ids.append(step)
        started = time.perf_counter()
        for sequence in kv.lacking_page(sequences):
            kv.grow(sequence, sequence.num_computed + 1)
        spent_s = time.perf_counter() - started
        for sequence in sequences:
            sequence.num_computed += 1
            sequence.num_completed += 1
        place = step * BATCH // OUTPUT_TOKENS
        leaving = range(place, (step + 1) * BATCH // OUTPUT_TOKENS)
        started = time.perf_counter()
        kv.commit(sequences)
        for index in leaving:
            kv.release(sequences[index % BATCH])
        steps_s.append(spent_s + time.perf_counter() - started)
        for index in leaving:
            sequences[index % BATCH] = start(index)
    return steps_s


def bench_scheduler_step() -> float:
    """A whole decode step of the scheduler, ledger and frame included, model excluded."""
    plan = ServePlan(
        max_model_len=8192,
        vocab_size=VOCAB_SIZE,
        backend="none",
        page_tokens=PAGE_TOKENS,
        num_pages=NUM_PAGES,
        max_num_seqs=BATCH,
        max_prefill_tokens=8192,
    )
    scheduler = Qwen3Scheduler(NullRunner(), KvManager(NUM_PAGES, PAGE_TOKENS), plan)
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
    """Hashing and matching one prompt of 128k tokens, and its conversation's next turn."""
    prompt = random_prompt(random.Random(0), PROMPT_TOKENS)
    num_blocks = PROMPT_TOKENS // PAGE_TOKENS
    kv = KvManager(2 * num_blocks + 100, PAGE_TOKENS)

    def sequence_of(token_ids: list[int]) -> Sequence:
        chain = kv.new_chain(packed=pack_tokens(token_ids))
        return Sequence(request(0, token_ids, 1), 1, chain=chain)

    def admit(sequence: Sequence) -> None:
        num_tokens = len(sequence.token_ids)
        kv.admit(sequence, reserve_tokens=num_tokens, room_tokens=num_tokens)

    def hash_all() -> None:
        chain = kv.new_chain(packed=pack_tokens(prompt))
        if chain is not None:
            chain.extend(prompt, num_blocks)

    def match(token_ids: list[int]) -> Callable[[], None]:
        packed = pack_tokens(token_ids)

        def run() -> None:
            chain = kv.new_chain(packed=packed)
            if chain is not None and kv._cache is not None:
                kv._cache.match(chain, token_ids, (len(token_ids) - 1) // PAGE_TOKENS)

        return run

    figures = {
        "pack its ids, done once, when it is accepted": best_s(lambda: pack_tokens(prompt), 50),
        "pack and hash it": best_s(hash_all, 30),
        "then match it when nobody has seen it": best_s(match(prompt), 30),
    }
    sequence = sequence_of(prompt)
    admit(sequence)
    kv.grow(sequence, PROMPT_TOKENS)
    sequence.num_computed = sequence.num_completed = PROMPT_TOKENS
    started = time.perf_counter()
    kv.commit([sequence])
    figures["hash and publish all its pages"] = time.perf_counter() - started
    next_turn = [*prompt, *range(100)]
    figures["match the next turn block by block (the first still runs)"] = best_s(
        match(next_turn), 30
    )
    kv.release(sequence)
    figures["match the next turn (the first has ended)"] = best_s(match(next_turn), 50)
    turns = [sequence_of(next_turn) for _ in range(20)]
    admits, releases = [], []
    for turn in turns:
        started = time.perf_counter()
        admit(turn)
        admitted = time.perf_counter()
        kv.release(turn)
        admits.append(admitted - started)
        releases.append(time.perf_counter() - admitted)
    figures["admit the next turn, its match included"] = min(admits)
    figures["release it"] = min(releases)
    return figures


def main() -> None:
    """Print all figures."""
    variants: dict[str, ManagerOptions] = {
        "native hashes": {},
        "vLLM's hashes (xxhash_cbor)": {"hasher": CborBlockHasher()},
        "native hashes, KV events": {"events": KvEventLog(NoCarrier())},
        "no prefix cache": {"prefix_cache": False},
    }
    print(f"KV bookkeeping of a decode step, batch {BATCH}, us: best / median / mean")
    for label, options in variants.items():
        steps_us = [step_s * 1e6 for step_s in bench_decode_bookkeeping(**options)]
        figures = (min(steps_us), median(steps_us), mean(steps_us))
        print(f"  {label}: {' / '.join(f'{figure:.0f}' for figure in figures)}")
    print(f"whole scheduler step, batch {BATCH}: {bench_scheduler_step() * 1e6:.0f} us")
    print(f"a prompt of {PROMPT_TOKENS} tokens, ms, best")
    for label, spent_s in bench_long_prompt().items():
        print(f"  {label}: {spent_s * 1e3:.2f}")


if __name__ == "__main__":
    main()
