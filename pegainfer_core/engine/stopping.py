"""When a request ends, and what its client hears of each completed row."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pegainfer_core.contract import FinishReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pegainfer_core.contract import TokenLogprobs
    from pegainfer_core.engine.ledger import Ledger
    from pegainfer_core.engine.pipeline import CompletedStep
    from pegainfer_core.engine.sequence import Sequence
    from pegainfer_core.engine.step import RowResult
    from pegainfer_core.grammar import GrammarState


NOT_NUMBERS: Final = (
    "the model's logits are not numbers (NaN): its weights are damaged, or a sum overflows"
)


def finish_reason(sequence: Sequence, token_id: int) -> FinishReason | None:
    """Why a sequence ends with the token just chosen (not yet in `token_ids`), or None.

    An end token counts only once `min_tokens` others were generated, and wins over the length
    limit. The context limit is part of `sequence.max_tokens`. A grammar allows end tokens when
    they count, which may be before `min_tokens`.
    """
    num_generated = len(sequence.token_ids) - sequence.num_prompt
    if token_id in sequence.end_token_ids:
        few = num_generated < sequence.request.params.min_tokens
        if not few or sequence.grammar is not None:
            return FinishReason.STOP
    if num_generated + 1 >= sequence.max_tokens:
        return FinishReason.LENGTH
    return None


def deliver(sequence: Sequence, result: RowResult, ledger: Ledger) -> FinishReason | None:
    """Take over a completed row: append its token and tell the client.

    `sequence.num_completed` must include the row already. An end token is counted by the ledger
    and neither appended nor sent.

    Returns:
        Why the request has ended (its terminal is out), None when it goes on.
    """
    request_id = sequence.request_id
    if sequence.prompt_logprobs is not None:
        _deliver_prompt(sequence, sequence.prompt_logprobs, result, ledger)
    token_id = result.token_id
    if token_id is None:
        if sequence.num_completed < len(sequence.token_ids) or sequence.max_tokens:
            return None
        ledger.finish(request_id, FinishReason.LENGTH)
        return FinishReason.LENGTH
    grammar = sequence.grammar
    if grammar is not None and (grammar.error or grammar.finished):
        return _end_by_grammar(request_id, grammar, ledger)
    reason = finish_reason(sequence, token_id)
    if reason is FinishReason.STOP:
        ledger.finish(request_id, reason, stop_token_id=token_id, stop_logprobs=result.logprobs)
        return reason
    sequence.token_ids.append(token_id)
    ledger.push(request_id, [token_id], None if result.logprobs is None else [result.logprobs])
    if reason is not None:
        ledger.finish(request_id, reason)
    elif grammar is not None:
        grammar.advance(token_id)
    return reason


def hand_over(
    steps: Iterable[CompletedStep], ledger: Ledger, leave: Callable[[Sequence], None]
) -> None:
    """Tell clients what completed steps produced, and part with the requests that ended.

    Args:
        steps: In order.
        ledger: Speaks to the clients.
        leave: Takes everything back from a sequence whose terminal is out, or is about to be.
    """
    for done in steps:
        for row, result in done.rows:
            if _is_broken(result):
                leave(row.sequence)
                ledger.fail(row.sequence.request_id, NOT_NUMBERS)
            elif deliver(row.sequence, result, ledger) is not None:
                leave(row.sequence)
        for sequence in done.failed:
            leave(sequence)
            ledger.fail(sequence.request_id, done.error)


def _is_broken(result: RowResult) -> bool:
    """Whether logits behind it are not numbers."""
    if result.token_id is not None and result.token_id < 0:
        return True
    return any(math.isnan(score.logprob) for score in result.prompt_logprobs or ())


def _end_by_grammar(request_id: int, grammar: GrammarState, ledger: Ledger) -> FinishReason:
    """The token was chosen without a mask, and is dropped."""
    if grammar.error:
        ledger.fail(request_id, f"structured {grammar.error}", field="structured")
        return FinishReason.ABORT
    ledger.finish(request_id, FinishReason.STOP)
    return FinishReason.STOP


def _deliver_prompt(
    sequence: Sequence,
    scores: list[TokenLogprobs | None],
    result: RowResult,
    ledger: Ledger,
) -> None:
    """Collect a chunk's scores; the client gets those of the whole prompt at once."""
    scores += result.prompt_logprobs or ()
    if len(scores) == sequence.num_prompt:
        ledger.push_prompt(sequence.request_id, scores)
        sequence.prompt_logprobs = None
