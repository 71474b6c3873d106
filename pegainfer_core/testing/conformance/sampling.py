"""Level 1: how tokens are chosen, and what is told about the choice."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, ClassVar, Final

from pegainfer_core.contract import (
    FinishReason,
    InvalidParam,
    SamplingParams,
    StructuredOutput,
)
from pegainfer_core.testing.conformance.session import greedy
from pegainfer_core.testing.conformance.subject import Subject
from pegainfer_core.text import Tokenizer

if TYPE_CHECKING:
    from pegainfer_core.contract import TokenLogprobs
    from pegainfer_core.testing.conformance.bench import Bench

_TOP: Final = 5


class SamplingConformance(Subject):
    """Seeds, biases, masks, penalties and log-probabilities, where the family has them."""

    level: ClassVar[str] = "L1"

    def test_a_seed_decides_the_answer(self, bench: Bench) -> None:
        """Alone and among others; another seed, or another sample of it, answers otherwise."""
        self.require("sampling")
        self.require("seed")
        session = bench.session()
        prompt = session.prompt(12)
        params = SamplingParams(temperature=1.5, max_tokens=24, seed=11)
        alone = session.generate(prompt, params).token_ids
        mates = [session.prompt(length) for length in (3, 30)]
        assert session.generate_together([mates[0], prompt, mates[1]], params)[1].token_ids == alone
        second_sample = session.answer(session.submit(prompt, params, sample_index=1)).token_ids
        other = SamplingParams(temperature=1.5, max_tokens=24, seed=12)
        assert len({tuple(alone), tuple(second_sample)}) == 2
        assert session.generate(prompt, other).token_ids != alone

    def test_a_bias_decides_the_choice(self, bench: Bench) -> None:
        """A bias of 100 outweighs the logits of any sane tiny model."""
        self.require("logit_bias")
        session = bench.session()
        answer = session.generate(session.prompt(6), greedy(5, logit_bias={3: 100.0}))
        assert answer.token_ids == [3] * 5

    def test_masks_bind(self, bench: Bench) -> None:
        """Allowed ids are the only ones; a bad sequence is not completed."""
        self.require("token_masks")
        session = bench.session()
        prompt = session.prompt(6)
        allowed = session.generate(prompt, greedy(8, allowed_token_ids=[2, 5]))
        assert set(allowed.token_ids) <= {2, 5}
        first, second, *_ = session.generate(prompt, greedy(8)).token_ids
        other = session.generate(prompt, greedy(8, bad_token_sequences=[[first]])).token_ids
        assert first not in other
        kept = session.generate(prompt, greedy(8, bad_token_sequences=[[first, second]])).token_ids
        assert kept[0] == first and kept[1] != second

    def test_penalties_bind(self, bench: Bench) -> None:
        """With two ids to choose from, a frequency penalty brings both."""
        self.require("token_masks")
        self.require("penalties")
        session = bench.session()
        params = greedy(64, allowed_token_ids=[2, 5], frequency_penalty=2.0)
        answer = session.generate(session.prompt(6), params).token_ids
        assert min(answer.count(2), answer.count(5)) > 0

    def test_logprobs_describe_the_choice(self, bench: Bench) -> None:
        """Shape, order and sums; greedy choices rank first; an end token has its own."""
        self.require("logprobs")
        session = bench.session()
        prompt = session.prompt(10)
        answer = session.generate(prompt, greedy(6, logprobs=_TOP))
        for token_id, entry in zip(answer.token_ids, answer.logprobs, strict=True):
            _check_entry(entry, _TOP)
            assert entry.rank == 1
            assert entry.top_token_ids[0] == token_id
            assert math.isclose(entry.logprob, entry.top_logprobs[0], abs_tol=1e-6)
        none = session.generate(prompt, greedy(6, logprobs=0))
        assert [entry.top_token_ids for entry in none.logprobs] == [[]] * 6
        stopped = session.generate(
            prompt, greedy(6, logprobs=_TOP, stop_token_ids=[answer.token_ids[0]])
        )
        assert stopped.finished.stop_logprobs is not None
        _check_entry(stopped.finished.stop_logprobs, _TOP)

    def test_forms_bind(self, bench: Bench) -> None:
        """Answers have the form that was asked for, and others beside them do not change.

        The checkpoint's folder needs a tokenizer, from which grammars learn what tokens spell.
        """
        self.require("structured")
        session = bench.session()
        prompt = session.prompt(6)
        alone = session.generate(prompt, greedy(8)).token_ids
        form = StructuredOutput(kind="regex", text="[0-9]{2}(-[a-c]){2}")
        formed = [
            session.submit(prompt, SamplingParams(structured=form, seed=seed, max_tokens=40))
            for seed in range(3)
        ]
        beside = session.submit(prompt, greedy(8))
        tokenizer = Tokenizer.from_dir(bench.model_dir)
        for request_id in formed:
            answer = session.answer(request_id)
            text = tokenizer.decode(answer.token_ids, skip_special_tokens=True)
            assert re.fullmatch(form.text, text), f"{text!r} is not {form.text}"
            assert answer.finished.reason is FinishReason.STOP
        assert session.answer(beside).token_ids == alone
        bad = greedy(2, structured=StructuredOutput(kind="regex", text="(a"))
        reason = session.generate(prompt, bad).rejected
        assert isinstance(reason, InvalidParam), f"{reason!r}"
        assert reason.field == "structured"

    def test_prompt_logprobs_cover_the_prompt(self, bench: Bench) -> None:
        """One entry per prompt token, the first None, also where the prefix is cached."""
        self.require("prompt_logprobs")
        session = bench.session()
        prompt = session.prompt(40)
        for _ in range(2):
            answer = session.generate(prompt, greedy(2, prompt_logprobs=_TOP))
            first, *others = answer.prompt_logprobs
            assert first is None
            assert len(others) == len(prompt) - 1
            for entry in others:
                assert entry is not None
                _check_entry(entry, _TOP)


def _check_entry(entry: TokenLogprobs, num_top: int) -> None:
    assert len(entry.top_token_ids) == len(entry.top_logprobs) == num_top
    assert len(set(entry.top_token_ids)) == num_top
    assert entry.top_logprobs == sorted(entry.top_logprobs, reverse=True)
    values = [entry.logprob, *entry.top_logprobs]
    assert all(math.isfinite(value) and value <= 1e-6 for value in values), f"{entry}"
    assert sum(math.exp(value) for value in entry.top_logprobs) <= 1 + 1e-3
    assert entry.rank >= 1
    if entry.rank <= num_top:
        assert math.isclose(entry.logprob, entry.top_logprobs[entry.rank - 1], abs_tol=1e-5)
