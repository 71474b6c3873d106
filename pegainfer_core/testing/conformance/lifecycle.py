"""Level 1: the order of a request's events, the engine's counts, and its end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, ClassVar, Final

import pytest

from pegainfer_core.contract import EngineError, FinishReason, HealthState
from pegainfer_core.testing.conformance.session import greedy
from pegainfer_core.testing.conformance.subject import Subject

if TYPE_CHECKING:
    from pegainfer_core.testing.conformance.bench import Bench

_LENGTHS: Final = (1, 2, 15, 16, 17, 40)


class LifecycleConformance(Subject):
    """What every request sees, and what is left when all have ended."""

    level: ClassVar[str] = "L1"

    def test_the_engine_is_what_was_planned(self, bench: Bench) -> None:
        """Its facts agree with the plan, and it is ready."""
        plan, info = bench.plan(), bench.session().handle.info
        assert info.family == bench.family.id
        assert (info.backend, info.vocab_size) == (plan.backend, plan.vocab_size)
        assert (info.max_model_len, info.page_tokens) == (plan.max_model_len, plan.page_tokens)
        assert info.max_num_seqs == plan.max_num_seqs
        assert info.capabilities == self.requirements.capabilities
        assert bench.session().handle.health().state is HealthState.READY

    def test_one_start_tokens_and_one_end_in_this_order(self, bench: Bench) -> None:
        """One Scheduled, then tokens, then one terminal event with right sums; nothing after it."""
        session = bench.session(fresh=True)
        prompts = [session.prompt(length) for length in _LENGTHS]
        session.generate_together(prompts, greedy(9))
        session.generate(prompts[0], greedy(1))  # Whatever comes late has come before its end.
        session.settle()
        for transcript in session.everything():
            transcript.check()
        assert not session.strays, "events of requests that do not exist"

    def test_counters_add_up(self, bench: Bench) -> None:
        """The metrics count what the requests were told."""
        session = bench.session()
        before = session.settle()
        answers = session.generate_together([session.prompt(n) for n in _LENGTHS], greedy(7))
        after = session.settle()
        assert after.prompt_tokens - before.prompt_tokens == sum(_LENGTHS)
        told = sum(answer.finished.completion_tokens for answer in answers)
        assert after.generation_tokens - before.generation_tokens == told
        by_length = sum(answer.finished.reason is FinishReason.LENGTH for answer in answers)
        assert after.num_finished_length - before.num_finished_length == by_length

    def test_nothing_is_held_when_all_have_ended(self, bench: Bench) -> None:
        """No request is counted and no KV page is in use; while one runs, both are counted."""
        session = bench.session(slow=True)
        limit = session.handle.info.max_model_len
        running = session.submit(session.prompt(20), greedy(limit - 20))
        session.wait_metrics(lambda m: m.num_running == 1, "the one running request")
        if self.requirements.paged_kv:
            session.wait_metrics(lambda m: m.kv_used_pages > 0, "KV pages in use")
            num_pages = session.handle.info.num_pages
            assert session.handle.metrics().kv_total_pages == num_pages > 0
        session.abort(running)
        session.generate(session.prompt(20), greedy(3))
        session.settle()

    def test_close_ends_open_requests_and_joins_threads(self, bench: Bench) -> None:
        """Their terminal is an Error; no thread is left; closing again is harmless."""
        before = set(threading.enumerate())
        session = bench.session(fresh=True, slow=True)
        limit = session.handle.info.max_model_len
        running = session.submit(session.prompt(2), greedy(limit - 2))
        session.wait_tokens(running, 1)
        session.handle.close()
        assert session.answer(running).error.message
        left = [t for t in threading.enumerate() if t not in before and not _is_progress_bars(t)]
        assert not left, f"threads outlive close(): {left}"
        session.handle.close()

    def test_a_closed_engine_refuses_and_says_so(self, bench: Bench) -> None:
        """Submitting raises, aborting is ignored, and its health is dead."""
        session = bench.session(fresh=True)
        session.handle.close()
        with pytest.raises(EngineError):
            session.submit([1], greedy(1))
        session.handle.abort(1)
        assert session.handle.health().state is HealthState.DEAD


def _is_progress_bars(thread: threading.Thread) -> bool:
    """The one monitor that tqdm keeps for all its bars until the process ends."""
    return type(thread).__module__.startswith("tqdm")
