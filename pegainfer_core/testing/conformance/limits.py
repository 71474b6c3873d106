"""Level 1: where an answer ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

from pegainfer_core.contract import FinishReason
from pegainfer_core.testing.conformance.session import greedy
from pegainfer_core.testing.conformance.subject import Subject

if TYPE_CHECKING:
    from pegainfer_core.testing.conformance.bench import Bench
    from pegainfer_core.testing.conformance.session import Session

_NUM_TOKENS = 24


class LimitsConformance(Subject):
    """Length limits, end tokens and stop tokens."""

    level: ClassVar[str] = "L1"

    @pytest.mark.parametrize("prompt_tokens", [1, 15, 16, 17])
    def test_max_tokens_is_kept(self, bench: Bench, prompt_tokens: int) -> None:
        """To the token, around page borders; and each answer begins the longer ones."""
        session = bench.session()
        prompt = session.prompt(prompt_tokens)
        longest = session.generate(prompt, greedy(33)).token_ids
        for max_tokens in (0, 1, 2, 15, 16, 17, 33):
            answer = session.generate(prompt, greedy(max_tokens))
            assert answer.finished.reason is FinishReason.LENGTH
            assert len(answer.token_ids) == max_tokens
            assert answer.token_ids == longest[:max_tokens]

    def test_without_max_tokens_the_context_is_filled(self, bench: Bench) -> None:
        """Prompt and answer together are as long as the context, not one token more."""
        session = bench.session({"max_model_len": 48})
        answer = session.generate(session.prompt(10), greedy(None))
        assert answer.finished.reason is FinishReason.LENGTH
        assert answer.finished.prompt_tokens + answer.finished.completion_tokens == 48

    def test_a_prompt_may_fill_all_but_one_token(self, bench: Bench) -> None:
        """The longest prompt that is accepted gets its one token."""
        session = bench.session({"max_model_len": 48})
        answer = session.generate(session.prompt(47), greedy(1))
        assert len(answer.token_ids) == 1

    def test_a_stop_token_is_counted_but_not_sent(self, bench: Bench) -> None:
        """Neither the client's nor the model's; it is named in the terminal event."""
        session = bench.session()
        prompt, reference, index = _with_new_token(session)
        stop = reference[index]
        by_client = session.submit(prompt, greedy(_NUM_TOKENS, stop_token_ids=[stop]))
        by_model = session.submit(prompt, greedy(_NUM_TOKENS), eos_token_ids=[stop])
        for request_id in (by_client, by_model):
            answer = session.answer(request_id)
            assert answer.token_ids == reference[:index]
            assert answer.finished.reason is FinishReason.STOP
            assert answer.finished.stop_token_id == stop
            assert answer.finished.completion_tokens == index + 1

    def test_ignore_eos_spares_the_clients_stop_tokens(self, bench: Bench) -> None:
        """The model's end tokens are sent like any other; the client's still end the answer."""
        session = bench.session()
        prompt, reference, index = _with_new_token(session)
        ignoring = greedy(_NUM_TOKENS, ignore_eos=True)
        whole = session.answer(session.submit(prompt, ignoring, eos_token_ids=[reference[index]]))
        assert whole.token_ids == reference
        params = greedy(_NUM_TOKENS, ignore_eos=True, stop_token_ids=[reference[index]])
        assert session.generate(prompt, params).token_ids == reference[:index]

    def test_min_tokens_come_before_any_end(self, bench: Bench) -> None:
        """An end token does not end the answer before; afterwards the limit still does."""
        self.require("min_tokens")
        session = bench.session()
        prompt, reference, index = _with_new_token(session)
        minimum = index + 2
        params = greedy(_NUM_TOKENS, stop_token_ids=[reference[index]], min_tokens=minimum)
        answer = session.generate(prompt, params)
        assert minimum <= len(answer.token_ids) <= _NUM_TOKENS
        assert answer.token_ids[:index] == reference[:index]


def _with_new_token(session: Session) -> tuple[list[int], list[int], int]:
    """A prompt, its greedy answer, and the place of a token that was not there before.

    Raises:
        AssertionError: No prompt's answer has one; the tiny model says always the same.
    """
    for seed in range(20):
        prompt = session.prompt(9, seed)
        reference = session.generate(prompt, greedy(_NUM_TOKENS)).token_ids
        for index in range(2, len(reference) - 3):
            if reference[index] not in reference[:index]:
                return prompt, reference, index
    raise AssertionError("the tiny model repeats one token whatever the prompt; make another")
