"""Level 1: what may not change an answer: batch mates, cached prefixes, preemption, the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from pegainfer_core.testing.conformance.session import greedy
from pegainfer_core.testing.conformance.subject import Subject

if TYPE_CHECKING:
    from pegainfer_core.testing.conformance.bench import Bench

_LENGTHS: Final = (1, 2, 15, 16, 17, 33, 64, 5)
#: Enough for a second request to start beside a first, for which there must be room for what both
#: will soon need, and not for both to end.
_POOL_PAGES: Final = 52
_GROWTH_TOKENS: Final = 512
#: On a busy machine the first request may have ended before the others come.
_PREEMPTION_TRIES: Final = 5


class SchedulingConformance(Subject):
    """Answers are a function of the request."""

    level: ClassVar[str] = "L1"

    def test_an_answer_repeats(self, bench: Bench) -> None:
        """Greedy, on the same engine."""
        session = bench.session()
        first, second = (session.generate(session.prompt(18), greedy(20)) for _ in range(2))
        assert first.token_ids == second.token_ids

    def test_batched_is_alone(self, bench: Bench) -> None:
        """Prompts of mixed lengths answer side by side as they do one after the other."""
        self.require("batch_invariant")
        session = bench.session()
        prompts = [session.prompt(length) for length in _LENGTHS]
        alone = [session.generate(prompt, greedy(20)).token_ids for prompt in prompts]
        together = session.generate_together(prompts, greedy(20))
        assert [answer.token_ids for answer in together] == alone

    def test_more_requests_than_fit_wait_their_turn(self, bench: Bench) -> None:
        """Twice as many as may run at once: all are answered, and rightly."""
        self.require("batch_invariant")
        session = bench.session({"max_num_seqs": 2})
        prompts = [session.prompt(length) for length in _LENGTHS[:5]]
        alone = [session.generate(prompt, greedy(12)).token_ids for prompt in prompts]
        together = session.generate_together(prompts, greedy(12))
        assert [answer.token_ids for answer in together] == alone
        session.settle()

    def test_lower_priority_numbers_run_first(self, bench: Bench) -> None:
        """Of two that wait, the urgent one starts first though it came last."""
        self.require("priority")
        session = bench.session({"max_num_seqs": 1}, slow=True)
        running = session.submit(session.prompt(3), greedy(session.handle.info.max_model_len - 3))
        session.wait_tokens(running, 1)
        patient = session.submit(session.prompt(4), greedy(3), priority=5)
        urgent = session.submit(session.prompt(5), greedy(3), priority=-5)
        session.abort(running)
        first, second = (session.answer(request_id).scheduled for request_id in (urgent, patient))
        assert first.scheduled_s < second.scheduled_s

    def test_a_cached_prefix_changes_no_token(self, bench: Bench) -> None:
        """Warm is cold: for whole and broken pages, and for a prompt that goes on."""
        self.require("prefix_cache")
        session = bench.session()
        page = session.handle.info.page_tokens
        hits = session.settle().prefix_hit_tokens
        for length in (3 * page - 1, 3 * page, 3 * page + 1):
            prompt = session.prompt(length, seed=length)
            cold = session.generate(prompt, greedy(page + 4))
            warm = session.generate(prompt, greedy(page + 4))
            assert cold.cached_tokens == 0
            assert warm.cached_tokens > 0, f"no page of a repeated prompt of {length} was reused"
            assert warm.token_ids == cold.token_ids
            hits += warm.cached_tokens
            longer = [*prompt, *warm.token_ids, *session.prompt(5)]
            warm = session.generate(longer, greedy(8))
            hits += warm.cached_tokens
            assert warm.cached_tokens >= 2 * page
            session.handle.reset_prefix_cache()
            cold = session.generate(longer, greedy(8))
            assert cold.cached_tokens == 0, "reset_prefix_cache left pages to be reused"
            assert warm.token_ids == cold.token_ids
        assert session.settle().prefix_hit_tokens == hits

    def test_salts_keep_prefixes_apart(self, bench: Bench) -> None:
        """Pages are shared between equal salts only."""
        self.require("prefix_cache")
        session = bench.session()
        prompt = session.prompt(2 * session.handle.info.page_tokens + 3, seed=99)
        own = session.generate(prompt, greedy(4), cache_salt="a")
        other = session.generate(prompt, greedy(4), cache_salt="b")
        again = session.generate(prompt, greedy(4), cache_salt="a")
        assert (own.cached_tokens, other.cached_tokens) == (0, 0)
        assert again.cached_tokens > 0
        assert own.token_ids == other.token_ids == again.token_ids

    def test_preemption_changes_no_token(self, bench: Bench) -> None:
        """Two requests grow beyond a small pool: one gives way, resumes, and answers as alone."""
        self.require("paged_kv")
        self.require("preemption")
        session = bench.session({"num_kv_pages": _POOL_PAGES})
        prompt = session.prompt(session.handle.info.page_tokens + 4)
        params = greedy(_GROWTH_TOKENS)
        alone = session.generate(prompt, params).token_ids
        before = session.settle().num_preemptions
        for _ in range(_PREEMPTION_TRIES):
            # Salts keep them from sharing their pages.
            request_ids = [session.submit(prompt, params, cache_salt=salt) for salt in ("a", "b")]
            together = [session.answer(request_id).token_ids for request_id in request_ids]
            assert together == [alone, alone]
            if session.settle().num_preemptions > before:
                return
        raise AssertionError("nothing was preempted, though the pool does not hold two")
