"""K07: an abort is a normal event at any moment, also while its step is on the device.

Seen elsewhere: aborting in the middle of a chunked prefill hits an assertion, leaks blocks, or
frees memory that is still being written. Overlapped steps have tests of
their own (test_k07_overlapped.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pegainfer_qwen3.engine import LoadedModel

from pegainfer_core.contract import TERMINAL_EVENTS, CoreOptions, FinishReason
from pegainfer_core.engine import driver
from pegainfer_core.plugin import PluginHost, prepare_launch
from pegainfer_core.testing.conformance.session import Session
from pegainfer_core.testing.conformance.transcript import Transcript
from tests.cases.answers import assert_close, assert_same, greedy
from tests.cases.conftest import TIMEOUT_S, StartEngine
from tests.cases.step_gate import LoggedRow, StepGate

B = 16
NUM_CHUNKS = 8
#: Six ways to run them: 204 rounds in all.
NUM_ROUNDS = 34
LONG = greedy(400, logprobs=1)
VICTIM = greedy(60, logprobs=1)
SHORT = greedy(2, logprobs=1)
UNKNOWN_ID = 10**6


class Undisturbed(NamedTuple):
    """What R says, and the third requests with what is said to them."""

    running: Transcript
    third_prompts: list[list[int]]
    thirds: list[Transcript]


@pytest.fixture
def fresh_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot of the metrics after every step, not only every 50 ms."""
    monkeypatch.setattr(driver, "_METRICS_PERIOD_S", 0.0)


@pytest.fixture(scope="module")
def undisturbed(f3: Path, qwen3_host: PluginHost) -> Iterator[Undisturbed]:
    """R and the third requests, each alone."""
    launch = prepare_launch(qwen3_host, f3, options=CoreOptions(prefix_cache=False))
    session = Session(launch.family.launch(launch.context, launch.plan), TIMEOUT_S)
    prompts = [session.prompt(B - 3, seed=seed) for seed in range(3)]
    thirds = [session.generate(prompt, SHORT) for prompt in prompts]
    yield Undisturbed(session.generate(session.prompt(5), LONG), prompts, thirds)
    session.handle.close()


def assert_prefix(answer: Transcript, whole: Transcript) -> None:
    """An answer that was cut short is right as far as it goes."""
    count = len(answer.token_ids)
    assert answer.finished.reason is FinishReason.ABORT
    assert answer.token_ids == whole.token_ids[:count]
    assert_close(answer.logprobs, whole.logprobs[:count])


def row_of(rows: list[LoggedRow], request_id: int) -> LoggedRow | None:
    return next((row for row in rows if row.request_id == request_id), None)


class Rounds:
    """R decodes all the time; each round a victim is aborted, and a third request follows it."""

    def __init__(self, session: Session, gate: StepGate, chunk: int) -> None:
        self.session = session
        self.gate = gate
        self.chunk = chunk
        gate.steps.clear()
        gate.close()
        self.running = session.submit(session.prompt(5), LONG)
        gate.wait()
        gate.step()

    def play(self, number: int, third_prompt: list[int]) -> tuple[int, int]:
        """One round; its step 0 leaves the victim queued, steps 9 and 10 find it decoding.

        Returns:
            The third request, and how many of its pages were the victim's a step before.
        """
        session, gate = self.session, self.gate
        num_steps = number % (NUM_CHUNKS + 3)
        victim = session.submit(session.prompt(NUM_CHUNKS * self.chunk, seed=number), VICTIM)
        mate = 0
        for done in range(num_steps):
            if done == num_steps - 1 and number % 2:
                # It ends in the very step in which the abort arrives.
                mate = session.submit([3], greedy(1))
            mine = row_of(gate.step(), victim)
            assert mine is not None
            if done < NUM_CHUNKS and not mate:
                assert (mine.start, mine.num_tokens) == (done * self.chunk, self.chunk)
        for request_id in (victim, victim, UNKNOWN_ID):
            session.handle.abort(request_id)
        third = session.submit(third_prompt, SHORT, cache_salt=f"round {number}")
        events = session.everything()[victim - 1].events
        assert not any(isinstance(event, TERMINAL_EVENTS) for event in events), "still running"
        left = gate.rows_of(victim)[-1].page_ids if num_steps else ()
        rows = gate.step()
        assert row_of(rows, victim) is None
        begun = row_of(rows, third)
        assert begun is not None
        while row_of(gate.step(), third) is not None:
            pass
        assert session.answer(victim).finished.reason is FinishReason.ABORT
        assert not mate or session.answer(mate).finished.reason is FinishReason.LENGTH
        self._expect_baseline()
        return third, len(set(begun.page_ids) & set(left))

    def _expect_baseline(self) -> None:
        """Between rounds R's pages are the only ones in use."""
        own = row_of(self.gate.steps[-2], self.running)
        assert own is not None
        assert self.session.handle.metrics().kv_used_pages == len(own.page_ids)


@pytest.mark.parametrize(
    ("options", "chunk"),
    [({}, B), ({}, B + 8), ({"prefix_cache": False}, B + 8), ({"num_kv_pages": 50}, B)],
)
def test_abort_after_every_chunk(
    options: dict[str, object],
    chunk: int,
    f3: Path,
    undisturbed: Undisturbed,
    start: StartEngine,
    gate: StepGate,
    fresh_metrics: None,
) -> None:
    third_prompts, expected = undisturbed.third_prompts, undisturbed.thirds
    session = start(f3, max_prefill_tokens=chunk, max_model_len=420, **options)
    rounds = Rounds(session, gate, chunk)
    thirds, num_handed_on = [], 0
    for number in range(NUM_ROUNDS):
        third, handed_on = rounds.play(number, third_prompts[number % 3])
        thirds.append(third)
        num_handed_on += handed_on
    gate.open()
    answer = session.abort(rounds.running)
    assert len(answer.token_ids) > 6 * NUM_ROUNDS, "it decoded all the time"
    assert_prefix(answer, undisturbed.running)
    for number, third in enumerate(thirds):
        assert_same(session.answer(third), expected[number % 3])
    assert num_handed_on >= NUM_ROUNDS // 2, "freed pages went to the next one at once"
    metrics = session.settle()
    assert metrics.num_aborted == NUM_ROUNDS + 1
    assert metrics.num_failed == metrics.num_rejected == 0
    for transcript in session.everything():
        transcript.check()
    assert session.strays == []
    assert_same(session.generate(third_prompts[0], SHORT), expected[0])


@pytest.mark.parametrize("num_steps", range(NUM_CHUNKS + 3))
def test_only_full_pages_of_completed_steps_are_found_again(
    num_steps: int, f3: Path, start: StartEngine, gate: StepGate
) -> None:
    chunk = B + 8
    session = start(f3, max_prefill_tokens=chunk)
    prompt = session.prompt(NUM_CHUNKS * chunk)
    gate.close()
    running = session.submit([5], LONG)
    gate.wait()
    victim = session.submit(prompt, VICTIM)
    for _ in range(num_steps):
        gate.step()
    session.handle.abort(victim)
    gate.open()
    session.answer(victim)
    session.abort(running)
    num_computed = min(num_steps * chunk, len(prompt) - 1)
    again = session.generate(prompt, SHORT)
    assert again.cached_tokens == num_computed // B * B
    plain = start(f3, prefix_cache=False)
    assert_same(again, plain.generate(prompt, SHORT))


def test_shared_pages_outlive_the_one_who_goes(
    f3: Path, start: StartEngine, gate: StepGate
) -> None:
    """Two live requests share a prefix; one is aborted, and a third takes what it had alone."""
    plain, session = start(f3, prefix_cache=False), start(f3, num_kv_pages=16)
    prompt, params = session.prompt(5 * B + 3), greedy(4 * B, logprobs=1)
    expected = plain.generate(prompt, params)
    session.generate(prompt, greedy(1))
    for turn in range(4):
        with gate.together(session):
            first, second = (session.submit(prompt, params) for _ in range(2))
        stays, goes = (first, second) if turn % 2 else (second, first)
        session.wait_tokens(goes, 5 + 3 * turn)
        assert session.abort(goes).cached_tokens == 5 * B
        third_prompt = session.prompt(6 * B, seed=turn)
        third = session.submit(third_prompt, SHORT)
        assert_same(session.answer(stays), expected)
        assert_same(session.answer(third), plain.generate(third_prompt, SHORT))
    assert session.settle().kv_used_pages == 0


def test_waiting_and_preempted_ones(f3: Path, start: StartEngine, gate: StepGate) -> None:
    """What waits holds nothing, whether it ran before or not; its end disturbs nobody."""
    plain = start(f3, prefix_cache=False)
    session = start(f3, num_kv_pages=64, max_model_len=48 * B)
    prompts = [session.prompt(B, seed=seed) for seed in range(4)]
    # More than a start leaves room for, so that two which fit at first outgrow the pages.
    params = greedy(40 * B, logprobs=1)
    expected = plain.generate(prompts[0], params)
    with gate.together(session):
        live = [session.submit(prompt, params) for prompt in prompts]
        gate.steps.clear()
    gate.close()
    rows = gate.wait()
    begun: set[int] = set()
    while not (begun - {row.request_id for row in rows}):
        begun |= {row.request_id for row in rows}
        rows = gate.step()
    (preempted, *_) = begun - {row.request_id for row in rows}
    assert preempted != live[0], "the oldest one never goes"
    for request_id in live[1:]:
        session.handle.abort(request_id)
    gate.open()
    for request_id in live[1:]:
        assert session.answer(request_id).finished.reason is FinishReason.ABORT
    assert_same(session.answer(live[0]), expected)
    metrics = session.settle()
    assert metrics.num_preemptions >= 1
    assert metrics.num_aborted == 3


def test_aborts_before_the_first_step(f3: Path, start: StartEngine, gate: StepGate) -> None:
    """A storm of requests that nobody wants any more costs no step."""
    session = start(f3)
    with gate.together(session):
        storm = [session.submit(session.prompt(100, seed=seed), VICTIM) for seed in range(50)]
        for request_id in storm:
            session.handle.abort(request_id)
    for request_id in storm:
        answer = session.answer(request_id)
        assert answer.finished.reason is FinishReason.ABORT
        assert not session.is_scheduled(request_id)
    metrics = session.settle()
    assert (metrics.num_aborted, metrics.kv_cached_pages, metrics.prompt_tokens) == (50, 0, 1)


def test_an_aborted_step_writes_to_its_own_pages_only(
    f3: Path, start: StartEngine, gate: StepGate, loaded: list[LoadedModel]
) -> None:
    """Pages of others hold the same values after the step as before it."""
    session = start(f3, max_prefill_tokens=B + 8)
    (model,) = loaded
    other = session.prompt(4 * B)
    session.generate(other, SHORT)
    kept = gate.rows_of(1)[-1].page_ids[:4]
    before = model.kv.pages.storage[list(kept)].copy()  # type: ignore[index]
    gate.close()
    victim = session.submit(session.prompt(6 * B, seed=1), VICTIM)
    gate.wait()
    gate.step()
    session.handle.abort(victim)
    gate.open()
    session.answer(victim)
    assert (model.kv.pages.storage[list(kept)] == before).all()  # type: ignore[index]
    assert session.generate(other, SHORT).cached_tokens == 3 * B
