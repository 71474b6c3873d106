"""Level 1: in an engine process of its own, a family answers as it does in this one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar, Final

import pytest

from pegainfer_core.contract import FinishReason, HealthState
from pegainfer_core.testing.conformance.session import greedy
from pegainfer_core.testing.conformance.subject import Subject

if TYPE_CHECKING:
    from pegainfer_core.testing.conformance.bench import Bench
    from pegainfer_core.testing.conformance.session import Session

_LENGTHS: Final = (1, 16, 33)


class TransportConformance(Subject):
    """The process transport."""

    level: ClassVar[str] = "L1"

    def test_the_engine_process_answers_alike(self, bench: Bench) -> None:
        """Same facts, tokens, ends, refusals and counts."""
        here, there = (bench.session(transport=t, fresh=True) for t in ("in-process", "process"))
        ours, theirs = here.handle.info, there.handle.info
        assert theirs.pid not in (0, os.getpid())
        assert (ours.vocab_size, ours.max_model_len) == (theirs.vocab_size, theirs.max_model_len)
        assert ours.capabilities == theirs.capabilities
        assert _answers(here) == _answers(there)
        for transcript in there.everything():
            transcript.check()
        assert not there.strays
        ours_counted, theirs_counted = here.settle(), there.settle()
        for name in ("prompt_tokens", "generation_tokens", "num_rejected", "kv_total_pages"):
            assert getattr(ours_counted, name) == getattr(theirs_counted, name), name

    def test_the_engine_process_frees_aborted_requests_and_ends(self, bench: Bench) -> None:
        """An abort frees all it held; after close the process is gone, open requests have ended."""
        session = bench.session(transport="process", slow=True, fresh=True)
        pid, limit = session.handle.info.pid, session.handle.info.max_model_len
        aborted, left = (session.submit(session.prompt(n), greedy(limit - n)) for n in (20, 21))
        session.wait_tokens(aborted, 2)
        assert session.abort(aborted).finished.reason is FinishReason.ABORT
        session.abort(left)
        session.settle()
        left = session.submit(session.prompt(20), greedy(limit - 20))
        session.wait_tokens(left, 1)
        session.handle.close()
        assert session.answer(left).error.message
        assert session.handle.health().state is HealthState.DEAD
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def _answers(session: Session) -> list[object]:
    prompts = [session.prompt(length) for length in _LENGTHS]
    told: list[object] = []
    for answer in session.generate_together(prompts, greedy(18)):
        told += [answer.token_ids, answer.finished.reason, answer.finished.completion_tokens]
    return [*told, session.generate([], greedy(1)).rejected]
