"""Level 1: a request can be ended at any moment, and leaves nothing behind."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from pegainfer_core.contract import FinishReason
from pegainfer_core.testing.conformance.session import greedy
from pegainfer_core.testing.conformance.subject import Subject

if TYPE_CHECKING:
    from pegainfer_core.testing.conformance.bench import Bench
    from pegainfer_core.testing.conformance.session import Session
    from pegainfer_core.testing.conformance.transcript import Transcript

_PREFILL_TRIES = 5


class AbortConformance(Subject):
    """Aborts while a request waits, while its prompt is computed, and while it decodes."""

    level: ClassVar[str] = "L1"

    def test_abort_of_a_waiting_request(self, bench: Bench) -> None:
        """It ends at once and unscheduled, while the one before it runs on."""
        session = bench.session({"max_num_seqs": 1}, slow=True)
        expected = _reference(session)
        running = _submit_long(session, 8)
        session.wait_tokens(running, 1)
        waiting = _submit_long(session, 20)
        answer = session.abort(waiting)
        _expect_abort(answer)
        assert answer.token_ids == [] and not session.is_scheduled(waiting)
        _expect_abort(session.abort(running))
        _expect_as_before(session, expected)

    def test_abort_while_the_prompt_is_computed(self, bench: Bench) -> None:
        """Between the start and the first token, where the family splits prompts."""
        session = bench.session({"max_prefill_tokens": 16}, slow=True)
        expected = _reference(session)
        length = session.handle.info.max_model_len * 3 // 4
        for attempt in range(_PREFILL_TRIES):
            request_id = session.submit(session.prompt(length, attempt), greedy(100))
            session.wait_scheduled(request_id)
            answer = session.abort(request_id)
            _expect_abort(answer)
            if not answer.token_ids:
                break
        else:
            raise AssertionError("no abort came before the first token; set slow_options")
        _expect_as_before(session, expected)

    def test_abort_soon_after_submission(self, bench: Bench) -> None:
        """Whatever the engine is doing with the request by then."""
        session = bench.session(slow=True)
        expected = _reference(session)
        for delay_s in (0.0, 0.001, 0.003, 0.01):
            request_id = _submit_long(session, 300)
            time.sleep(delay_s)
            _expect_abort(session.abort(request_id))
        _expect_as_before(session, expected)

    def test_abort_while_decoding(self, bench: Bench) -> None:
        """Each of several, one after the other; the answers so far are as without an abort."""
        session = bench.session(slow=True)
        expected = _reference(session)
        request_ids = [_submit_long(session, length) for length in (3, 17, 33)]
        for num_tokens, request_id in enumerate(request_ids, 2):
            session.wait_tokens(request_id, num_tokens)
        for request_id in request_ids:
            answer = session.abort(request_id)
            _expect_abort(answer)
            assert len(answer.token_ids) >= 2
            again = session.generate(answer.request.prompt_token_ids, greedy(2))
            assert answer.token_ids[:2] == again.token_ids
        _expect_as_before(session, expected)

    def test_abort_of_ended_and_unknown_requests_is_ignored(self, bench: Bench) -> None:
        """Also twice for one request: it still has one terminal event."""
        session = bench.session(slow=True, fresh=True)
        expected = _reference(session)
        request_id = _submit_long(session, 3)
        session.wait_tokens(request_id, 1)
        for ignored in (request_id, request_id, 10**9):
            session.handle.abort(ignored)
        _expect_abort(session.answer(request_id))
        session.handle.abort(request_id)
        _expect_as_before(session, expected)
        for transcript in session.everything():
            transcript.check()
        assert not session.strays


def _submit_long(session: Session, prompt_tokens: int) -> int:
    """A request that lasts as long as the context allows."""
    prompt = session.prompt(prompt_tokens)
    return session.submit(prompt, greedy(session.handle.info.max_model_len - prompt_tokens))


def _reference(session: Session) -> list[int]:
    return session.generate(session.prompt(21, seed=7), greedy(10)).token_ids


def _expect_abort(answer: Transcript) -> None:
    assert answer.finished.reason is FinishReason.ABORT, (
        f"{answer} ended by {answer.finished.reason} before it could be aborted: let make_model "
        "write a longer context, or set slow_options"
    )


def _expect_as_before(session: Session, expected: list[int]) -> None:
    """Pages are free, and the next answer is what it was."""
    session.settle()
    assert _reference(session) == expected
    session.settle()
