"""Whatever clients do, whatever the pool: right tokens, one terminal each, every page back."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pegainfer_core.contract import SamplingParams
from pegainfer_core.kv import BlockHasher
from tests.scheduler.harness import PAGE_TOKENS, Harness
from tests.scheduler.paged_model import STOP, VOCAB_SIZE

# Few distinct prefixes, cut anywhere, so that sharing, forks and near misses are common.
STEMS = [[(7 * i + stem) % 40 for i in range(10 * PAGE_TOKENS)] for stem in range(2)]

prompts = st.builds(
    lambda stem, cut, tail: STEMS[stem][:cut] + tail,
    st.integers(0, len(STEMS) - 1),
    st.integers(0, 7 * PAGE_TOKENS),
    st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=PAGE_TOKENS + 1),
)
sampling = st.builds(
    lambda max_tokens, min_share, **fields: SamplingParams(
        max_tokens=max_tokens, min_tokens=int((max_tokens or 0) * min_share), **fields
    ),
    max_tokens=st.one_of(st.integers(0, 40), st.none()),
    min_share=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.one_of(st.none(), st.integers(0, 3)),
    ignore_eos=st.booleans(),
    stop_token_ids=st.sampled_from([[], [STOP]]),
    logprobs=st.one_of(st.none(), st.just(1)),
    prompt_logprobs=st.one_of(st.none(), st.none(), st.none(), st.just(0)),
)


class AnyHistory(RuleBasedStateMachine):
    """Submissions, steps, aborts and cache resets in any order."""

    @initialize(
        num_usable_pages=st.integers(3, 40),
        max_num_seqs=st.integers(1, 6),
        max_prefill_tokens=st.sampled_from([1, 3, 8, 64]),
        prefix_cache=st.sampled_from([True, True, True, False]),
        reserve=st.sampled_from(["on-demand", "on-demand", "worst-case"]),
        headroom_tokens=st.sampled_from([0, 0, 8, 512]),
        itl_target_s=st.sampled_from([None, None, 1e-9, 1e-4, 1.0]),
        constant_hash=st.sampled_from([False, False, False, True]),
    )
    def start(self, constant_hash: bool, **options: object) -> None:
        hasher = BlockHasher(lambda data: b"same") if constant_hash else None
        options["max_model_len"] = 96
        self.harness = Harness(hasher=hasher, **options)  # type: ignore[arg-type]
        self.worst_case = options["reserve"] == "worst-case"

    @rule(
        prompt=prompts,
        params=sampling,
        priority=st.sampled_from([0, 0, 0, -1, 5]),
        salt=st.sampled_from(["", "", "", "a"]),
        copies=st.integers(1, 3),
    )
    def submit(
        self, prompt: list[int], params: SamplingParams, priority: int, salt: str, copies: int
    ) -> None:
        for _ in range(copies):
            self.harness.submit(prompt, params=params, priority=priority, cache_salt=salt)

    @precondition(lambda self: self.harness.scheduler.has_work())
    @rule(count=st.integers(1, 6))
    def step(self, count: int) -> None:
        for _ in range(count):
            if self.harness.scheduler.has_work():
                self.harness.step()

    @precondition(lambda self: self.harness.requests)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        # Also ended, rejected and already aborted ones, and one that never was.
        self.harness.abort(data.draw(st.integers(1, len(self.harness.requests) + 1)))

    @rule()
    def reset(self) -> None:
        self.harness.scheduler.reset_prefix_cache()
        self.harness.check_pages()
        assert self.harness.metrics.kv_cached_pages == 0

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return
        self.harness.drain()
        for request_id in self.harness.requests:
            assert self.harness.answers[request_id].terminal is not None
            self.harness.expect_right(request_id)
        if self.worst_case:
            assert self.harness.metrics.num_preemptions == 0


def test_any_history() -> None:
    run_state_machine_as_test(
        AnyHistory,
        settings=settings(
            max_examples=18,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
