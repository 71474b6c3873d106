"""When a request ends and what its client hears of it."""

from __future__ import annotations

import pytest

from pegainfer_core.contract import (
    Finished,
    FinishReason,
    GenerateRequest,
    PromptTokens,
    SamplingParams,
    TokenEvent,
    TokenLogprobs,
    Tokens,
)
from pegainfer_core.engine import Ledger, RowResult, Sequence, deliver, finish_reason

EOS, STOP, BOTH, WORD = 90, 91, 92, 5


def sequence(num_generated: int = 0, max_tokens: int = 10, **params: object) -> Sequence:
    request = GenerateRequest(
        request_id=1,
        prompt_token_ids=[1, 2, 3],
        params=SamplingParams(stop_token_ids=[STOP, BOTH], **params),  # type: ignore[arg-type]
        eos_token_ids=[EOS, BOTH],
    )
    result = Sequence(request, max_tokens)
    result.token_ids += [WORD] * num_generated
    result.num_computed = result.num_completed = len(result.token_ids)
    return result


@pytest.mark.parametrize(
    ("token_id", "num_generated", "params", "reason"),
    [
        (WORD, 0, {}, None),
        (EOS, 0, {}, FinishReason.STOP),
        (STOP, 0, {}, FinishReason.STOP),
        (EOS, 0, {"ignore_eos": True}, None),
        (STOP, 0, {"ignore_eos": True}, FinishReason.STOP),
        (BOTH, 0, {"ignore_eos": True}, FinishReason.STOP),
        (EOS, 1, {"min_tokens": 2}, None),
        (STOP, 1, {"min_tokens": 2}, None),
        (EOS, 2, {"min_tokens": 2}, FinishReason.STOP),
        (WORD, 8, {}, None),
        (WORD, 9, {}, FinishReason.LENGTH),
        (EOS, 9, {}, FinishReason.STOP),
        (EOS, 9, {"min_tokens": 10}, FinishReason.LENGTH),
    ],
)
def test_finish_reason(
    token_id: int, num_generated: int, params: dict[str, object], reason: FinishReason | None
) -> None:
    assert finish_reason(sequence(num_generated, **params), token_id) is reason


def heard(seq: Sequence, *results: RowResult) -> list[TokenEvent]:
    ledger = Ledger()
    ledger.open(seq.request)
    ledger.schedule(1, 0)
    ledger.take_frame()
    for result in results:
        deliver(seq, result, ledger)
    frame = ledger.take_frame()
    return frame.events if frame else []


def score(value: float) -> TokenLogprobs:
    return TokenLogprobs(value, 1, [], [])


def test_an_end_token_is_counted_but_neither_sent_nor_kept() -> None:
    seq = sequence(num_generated=0)
    events = heard(seq, RowResult(WORD, score(-1)), RowResult(EOS, score(-2)))
    assert events == [
        Tokens(1, [WORD], [score(-1)]),
        Finished(1, FinishReason.STOP, 3, 2, EOS, score(-2)),
    ]
    assert seq.token_ids == [1, 2, 3, WORD]


def test_the_last_token_is_sent_before_the_terminal() -> None:
    events = heard(sequence(max_tokens=1), RowResult(WORD))
    assert events == [Tokens(1, [WORD]), Finished(1, FinishReason.LENGTH, 3, 1)]


def test_an_unfinished_chunk_says_nothing() -> None:
    seq = sequence()
    seq.num_computed = seq.num_completed = 2
    assert heard(seq, RowResult(None)) == []


def test_a_prompt_without_output_ends_with_its_scores() -> None:
    seq = sequence(max_tokens=0, prompt_logprobs=0)
    seq.num_computed = seq.num_completed = 1
    assert heard(seq, RowResult(None, prompt_logprobs=[score(-1)])) == []
    seq.num_computed = seq.num_completed = 3
    events = heard(seq, RowResult(None, prompt_logprobs=[score(-2)]))
    assert events == [
        PromptTokens(1, [None, score(-1), score(-2)]),
        Finished(1, FinishReason.LENGTH, 3, 0),
    ]


def test_a_preempted_prompt_is_scored_anew_unless_it_was_sent() -> None:
    seq = sequence(prompt_logprobs=0)
    heard(seq, RowResult(None, prompt_logprobs=[score(-1)]))
    seq.preempted()
    assert (seq.prompt_logprobs, seq.num_preemptions) == ([None], 1)
    events = heard(seq, RowResult(WORD, prompt_logprobs=[score(-1), score(-2)]))
    assert events == [PromptTokens(1, [None, score(-1), score(-2)]), Tokens(1, [WORD])]
    seq.preempted()
    assert seq.prompt_logprobs is None


def test_a_prompt_of_one_token_has_no_score() -> None:
    seq = Sequence(
        GenerateRequest(
            request_id=1, prompt_token_ids=[4], params=SamplingParams(prompt_logprobs=0)
        ),
        max_tokens=5,
    )
    assert heard(seq, RowResult(WORD)) == [PromptTokens(1, [None]), Tokens(1, [WORD])]
