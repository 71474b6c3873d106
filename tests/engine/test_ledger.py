"""The ledger's rules: an account is open from submission to exactly one terminal."""

from __future__ import annotations

import pytest

from pegainfer_core.contract import (
    EmptyPrompt,
    Error,
    Finished,
    FinishReason,
    GenerateRequest,
    Rejected,
    StepFrame,
    Tokens,
)
from pegainfer_core.engine import Ledger, LedgerError
from pegainfer_core.engine.wire import merge_frames


@pytest.fixture
def ledger() -> Ledger:
    ledger = Ledger()
    ledger.open(GenerateRequest(request_id=1, prompt_token_ids=[5, 6]))
    return ledger


def test_counts_come_from_what_was_shipped(ledger: Ledger) -> None:
    ledger.schedule(1, 0)
    ledger.push(1, [10])
    ledger.push(1, [11, 12])
    ledger.finish(1, FinishReason.STOP, stop_token_id=2)
    frame = ledger.take_frame()
    assert frame is not None
    assert frame.events[-1] == Finished(1, FinishReason.STOP, 2, 4, 2)
    assert (ledger.prompt_tokens, ledger.generation_tokens) == (2, 4)
    assert ledger.take_frame() is None


def test_a_closed_account_cannot_be_used(ledger: Ledger) -> None:
    ledger.schedule(1, 0)
    ledger.abort(1)
    for use in (
        lambda: ledger.push(1, [1]),
        lambda: ledger.abort(1),
        lambda: ledger.schedule(1, 0),
    ):
        with pytest.raises(LedgerError, match="not open"):
            use()


def test_order_is_enforced(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="before it was scheduled"):
        ledger.push(1, [1])
    ledger.schedule(1, 0)
    with pytest.raises(LedgerError, match="scheduled twice"):
        ledger.schedule(1, 0)
    with pytest.raises(LedgerError, match="rejected after"):
        ledger.reject(1, EmptyPrompt())


def test_an_id_can_be_open_only_once(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="already open"):
        ledger.open(GenerateRequest(request_id=1, prompt_token_ids=[1]))


def test_fail_all_leaves_nothing_open(ledger: Ledger) -> None:
    ledger.open(GenerateRequest(request_id=2, prompt_token_ids=[1]))
    ledger.reject(2, EmptyPrompt())
    ledger.fail_all("gone")
    frame = ledger.take_frame()
    assert frame == StepFrame([Rejected(2, EmptyPrompt()), Error(1, "gone", 2, 0)])
    assert len(ledger) == 0
    assert ledger.num_failed == 1


@pytest.mark.parametrize("num_steps", [2, 64, 65, 300])
def test_merged_frames_keep_each_requests_order(num_steps: int) -> None:
    frames = [StepFrame([Tokens(1, [i]), Tokens(2, [i + 500])]) for i in range(num_steps)]
    done = Finished(1, FinishReason.LENGTH, 1, num_steps)
    frames[-1].events.append(done)
    events = merge_frames(frames).events
    assert events.count(done) == 1
    for request_id, first in ((1, 0), (2, 500)):
        tokens = [e for e in events if isinstance(e, Tokens) and e.request_id == request_id]
        assert [i for e in tokens for i in e.token_ids] == list(range(first, first + num_steps))
        # One event per step, unless the reader has fallen far behind.
        assert len(tokens) == (num_steps if num_steps <= 64 else 1)
    assert events.index(done) > max(
        at for at, e in enumerate(events) if isinstance(e, Tokens) and e.request_id == 1
    )
