"""The whole engine: scheduler, pages, states and model together, over the in-process transport."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import pytest
from pegainfer_qwen35.config import plan_qwen35
from pegainfer_qwen35.engine import launch

from pegainfer_core.contract import SamplingParams
from pegainfer_core.testing.conformance.session import Session
from pegainfer_core.weights import ConfigError
from plugins.pegainfer_qwen35.tests.stepper import launch_context
from plugins.pegainfer_qwen35.tests.test_invariance import prompt
from tests.hf import golden
from tests.hf.cases import NUM_GREEDY_TOKENS

if TYPE_CHECKING:
    from pathlib import Path

    from plugins.pegainfer_qwen35.tests.conftest import Checkpoint

CASE = "qwen35_ratio3"
PAGE = 16


def greedy(max_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)


@contextlib.contextmanager
def serving(
    model_dir: Path, *, state_cache_gib: float | None = None, **options: object
) -> Iterator[Session]:
    limits: dict[str, object] = {"backend": "numpy", "num_kv_pages": 400, "max_num_seqs": 8}
    context = launch_context(model_dir, **(limits | options))
    own = {} if state_cache_gib is None else {"state_cache_gib": state_cache_gib}
    context = msgspec.structs.replace(context, family_options=own)
    engine = launch(context, plan_qwen35(context))
    try:
        session = Session(engine, 60.0)
        yield session
        session.settle()
    finally:
        engine.close()


@pytest.mark.parametrize("case", ["qwen35_ratio3", "qwen35_nested"])
def test_goldens_cold_warm_and_side_by_side(case: str, checkpoint: Checkpoint) -> None:
    with serving(checkpoint(case), max_prefill_tokens=48, num_kv_pages=120) as session:
        prompts = list(golden.load(case).prompts.values())
        for is_warm in (False, True, True):
            ids = [session.submit(p.prompt.tolist(), greedy(NUM_GREEDY_TOKENS)) for p in prompts]
            for request_id, expected in zip(ids, prompts, strict=True):
                answer = session.answer(request_id)
                assert answer.token_ids == expected.greedy.tolist()
                border = (expected.prompt.size - 1) // PAGE * PAGE
                assert answer.cached_tokens == (border if is_warm else 0)


def test_the_next_turn_starts_at_the_last_border_of_the_answer(checkpoint: Checkpoint) -> None:
    with serving(checkpoint(CASE)) as session:
        for length, num_tokens in ((20, 41), (31, 2), (32, 33), (40, 1), (3, 100)):
            first = session.generate(prompt(length), greedy(num_tokens))
            turn = [*prompt(length), *first.token_ids, *prompt(7, seed=1)]
            # The last token of an answer was never computed.
            known = length + num_tokens - 1
            expected = known // PAGE * PAGE
            if num_tokens == 1 or known // PAGE == length // PAGE:
                expected = min(expected, (length - 1) // PAGE * PAGE)
            second = session.generate(turn, greedy(5))
            assert second.cached_tokens == expected, (length, num_tokens)
            session.handle.reset_prefix_cache()
            cold = session.generate(turn, greedy(5))
            assert (cold.cached_tokens, cold.token_ids) == (0, second.token_ids)
            session.handle.reset_prefix_cache()


def test_a_long_answer_keeps_one_snapshot(checkpoint: Checkpoint) -> None:
    """Beside those of its prompt: what it passed on the way is of no use."""
    model_dir = checkpoint(CASE)
    slot_bytes = 2 * (6 * 16 * 32 + 3 * 256) * 4
    with serving(model_dir, state_cache_gib=3.5 * slot_bytes / 2**30) as session:
        first = session.generate(prompt(40), greedy(200))
        turn = session.generate([*prompt(40), *first.token_ids, 9], greedy(1))
        again = session.generate(prompt(40), greedy(1))
        assert (turn.cached_tokens, again.cached_tokens) == (224, 32)


def test_the_third_prompt_starts_where_the_first_two_parted(checkpoint: Checkpoint) -> None:
    shared = prompt(150)
    tails = [prompt(60, seed=seed) for seed in range(1, 4)]
    with serving(checkpoint(CASE)) as session:
        warm = [session.generate(shared + tail, greedy(8)) for tail in tails]
        assert [answer.cached_tokens for answer in warm] == [0, 0, 144]
        for tail, answer in zip(tails, warm, strict=True):
            session.handle.reset_prefix_cache()
            assert session.generate(shared + tail, greedy(8)).token_ids == answer.token_ids


def test_long_prompts_leave_states_on_the_way(checkpoint: Checkpoint) -> None:
    long = prompt(2200)
    with serving(checkpoint(CASE)) as session:
        session.generate(long, greedy(1))
        fork = session.generate([*long[:2100], *prompt(30, seed=1)], greedy(4))
        assert fork.cached_tokens == 2048
        session.handle.reset_prefix_cache()
        cold = session.generate([*long[:2100], *prompt(30, seed=1)], greedy(4))
        assert cold.token_ids == fork.token_ids


@pytest.mark.parametrize("options", [{"prefix_cache": False}, {"state_cache_gib": 0.0}])
def test_without_snapshots_nothing_is_taken_over(
    options: dict[str, object], checkpoint: Checkpoint
) -> None:
    with serving(checkpoint(CASE), **options) as session:  # type: ignore[arg-type]
        expected = golden.load(CASE).prompts[130]
        for _ in range(2):
            answer = session.generate(expected.prompt.tolist(), greedy(NUM_GREEDY_TOKENS))
            assert answer.token_ids == expected.greedy.tolist()
            assert answer.cached_tokens == 0


def test_few_snapshots_are_shared_by_many_and_answers_stay_right(checkpoint: Checkpoint) -> None:
    """More rows than slots: what is given up, skipped or restored late changes no token."""
    slot_bytes = 2 * (6 * 16 * 32 + 3 * 256) * 4
    prompts = [[*prompt(48), *prompt(10 + 5 * i, seed=i)] for i in range(8)]
    with serving(checkpoint(CASE), prefix_cache=False) as session:
        alone = [session.generate(ids, greedy(50)).token_ids for ids in prompts]
    with serving(
        checkpoint(CASE), state_cache_gib=3.5 * slot_bytes / 2**30, max_prefill_tokens=40
    ) as session:
        for _ in range(3):
            answers = session.generate_together(prompts, greedy(50))
            assert [answer.token_ids for answer in answers] == alone


def test_preempted_requests_go_on_from_their_last_border(small: Path) -> None:
    prompts = [prompt(30, seed=seed) for seed in range(3)]
    with serving(small) as session:
        together = session.generate_together(prompts, greedy(600))
        unhurried = [answer.token_ids for answer in together]
        assert session.settle().num_preemptions == 0
    with serving(small, num_kv_pages=60) as session:
        together = session.generate_together(prompts, greedy(600))
        assert [answer.token_ids for answer in together] == unhurried
        assert session.settle().num_preemptions > 0


def test_an_abort_within_a_prompt_leaves_a_clean_slot(checkpoint: Checkpoint) -> None:
    expected = golden.load(CASE).prompts[37]
    with serving(checkpoint(CASE), max_prefill_tokens=8, max_num_seqs=1) as session:
        for length in (300, 200):
            request_id = session.submit(prompt(length), greedy(4))
            session.wait_scheduled(request_id)
            assert not session.abort(request_id).token_ids
            answer = session.generate(expected.prompt.tolist(), greedy(NUM_GREEDY_TOKENS))
            assert answer.token_ids == expected.greedy.tolist()
        # What the aborted one had computed may be taken over, state and all.
        half = session.generate(prompt(300), greedy(10)).token_ids
        session.handle.reset_prefix_cache()
        assert session.generate(prompt(300), greedy(10)).token_ids == half


def test_dummy_weights_serve_without_a_checkpoint(tmp_path: Path, checkpoint: Checkpoint) -> None:
    (tmp_path / "config.json").write_text((checkpoint(CASE) / "config.json").read_text())
    with serving(tmp_path, load_format="dummy") as session:
        first = session.generate(prompt(50), greedy(20))
        assert session.generate(prompt(50), greedy(20)).token_ids == first.token_ids
    with pytest.raises(ConfigError, match="no safetensors file"), serving(tmp_path):
        pass
