"""A step that fails takes its own requests with it, and nothing else."""

from __future__ import annotations

import random
from typing import get_args

import pytest

from pegainfer_core.contract import DeviceFault, Error, Finished, SamplingParams
from tests.scheduler.faulty_model import FaultyModel, Where
from tests.scheduler.harness import Harness, alone

CHUNK = 8
PROMPT = [(13 * i) % 40 for i in range(3 * CHUNK + 2)]
LONG = SamplingParams(max_tokens=12, ignore_eos=True)
WHERE = get_args(Where)


def expect_failed(harness: Harness, request_id: int, words: str) -> None:
    """The client got what was computed before, then the reason."""
    answer, request = harness.answers[request_id], harness.requests[request_id]
    assert isinstance(answer.terminal, Error)
    assert words in answer.terminal.message
    right = alone(request, harness.max_tokens(request))
    assert answer.token_ids == right.token_ids[: len(answer.token_ids)]
    assert answer.terminal.completion_tokens == len(answer.token_ids)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("number", range(1, 15))
def test_only_the_requests_of_the_step_fail(where: Where, number: int) -> None:
    harness = Harness(num_usable_pages=60, max_num_seqs=3, max_prefill_tokens=CHUNK)
    error = RuntimeError("no such kernel")
    model = FaultyModel.put_into(
        harness.model, where, lambda step: error if step == number else None
    )
    prompts = [[1, 2, 3], [4, 5], [6, *PROMPT], [7, 8, 9], [10, *PROMPT]]
    requests = [harness.submit(prompt, params=LONG) for prompt in prompts]
    harness.drain()
    (failed,) = model.failed
    assert failed
    for request_id in requests:
        if request_id in failed:
            expect_failed(harness, request_id, "RuntimeError: no such kernel")
        else:
            harness.expect_right(request_id)
    # What the failed step left in pages is found by nobody.
    for prompt in prompts:
        harness.run(prompt, params=LONG)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("seed", range(6))
def test_any_history_with_failures(where: Where, seed: int) -> None:
    """Pages are scarce, prefixes are shared: preemptions and hits among the failures."""
    chance = random.Random(seed)
    harness = Harness(num_usable_pages=14, max_num_seqs=4, headroom_tokens=2)
    failing = random.Random(1000 + seed)
    model = FaultyModel.put_into(
        harness.model,
        where,
        lambda step: MemoryError(f"step {step}") if failing.random() < 0.04 else None,
    )
    for _ in range(80):
        prompt = [*PROMPT[: chance.randrange(1, 20)], chance.randrange(40)]
        request_id = harness.submit(prompt, params=SamplingParams(max_tokens=chance.randrange(9)))
        harness.steps(chance.randrange(4) if harness.scheduler.has_work() else 0)
        if chance.random() < 0.1:
            harness.abort(request_id)
    harness.drain()
    failed = set().union(*model.failed)
    assert model.failed
    num_failed = 0
    for request_id, answer in harness.answers.items():
        if isinstance(answer.terminal, Error):
            assert request_id in failed
            expect_failed(harness, request_id, "MemoryError: step")
            num_failed += 1
        else:
            assert answer.terminal is not None
            harness.expect_right(request_id)
    assert num_failed == harness.ledger.num_failed > 0


@pytest.mark.parametrize("where", WHERE)
def test_every_step_fails_and_the_scheduler_goes_on(where: Where) -> None:
    harness = Harness()
    FaultyModel.put_into(harness.model, where, lambda step: ValueError("always"))
    for _ in range(20):
        request_id = harness.submit(PROMPT[:9], params=LONG)
        harness.drain(max_steps=10)
        expect_failed(harness, request_id, "ValueError: always")
    FaultyModel.put_into(harness.model, where, lambda step: None)
    assert isinstance(harness.run(PROMPT[:9], params=LONG).terminal, Finished)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("error", [DeviceFault("GPU 0 is gone"), RuntimeError("a kernel failed")])
def test_a_lost_device_is_everybodys_fault(where: Where, error: Exception) -> None:
    """Whether the runner says so at once, or is asked when a step has failed."""
    harness = Harness()
    model = FaultyModel.put_into(harness.model, where, lambda step: error if step == 4 else None)
    model.lost = True
    for first in range(4):
        harness.submit([first, *PROMPT[:5]], params=LONG)
    with pytest.raises(DeviceFault, match="GPU 0 is gone"):
        harness.steps(10)
    assert model.failed
