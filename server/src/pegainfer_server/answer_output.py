"""An answer from its token ids: its text, and what parsers make of the text.

Knows no engine and no wire format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pegainfer_core.text import AnswerDelta, TextDelta, TextOutput, join_deltas

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.text import AnswerParser, Tokenizer
    from pegainfer_server.job import Job


class OutputDelta(NamedTuple):
    """What some tokens add; `answer` is None where all text is content."""

    text: TextDelta
    answer: AnswerDelta | None


class AnswerOutput:
    """Builds one answer.

    Attributes:
        called: Whether there was a tool call that the client had not named.
        too_many_calls: Whether a call beyond the one that was asked for has ended the answer.
        num_reasoning_tokens: Tokens of the reasoning and its markers; None without a parser.
    """

    def __init__(self, job: Job, tokenizer: Tokenizer, end_token_ids: frozenset[int]) -> None:
        parsing = job.parsing
        self.called = False
        self.too_many_calls = False
        self.num_reasoning_tokens = 0 if parsing and parsing.reasoning else None
        self._parser: AnswerParser | None = parsing.parser() if parsing else None
        self._end_token_ids = end_token_ids
        self._one_call = parsing is not None and parsing.one_call
        self._forced = parsing is not None and parsing.forced
        self._hide_reasoning = parsing is not None and parsing.hide_reasoning
        self._text = TextOutput(
            tokenizer,
            stop=job.stop,
            include_stop_str_in_output=job.include_stop,
            skip_special_tokens=job.skip_special_tokens,
            shown_ids=_ids(self._parser, tokenizer),
            end_token_ids=() if job.params.ignore_eos else end_token_ids,
            stop_token_ids=job.params.stop_token_ids,
            min_tokens=job.params.min_tokens,
            text_offsets=job.logprobs is not None,
            base_offset_chars=len(job.echo.text) if job.echo else 0,
        )

    @property
    def num_tokens(self) -> int:
        """Tokens of the answer so far."""
        return self._text.num_tokens

    def stop_reason(self, stop_token_id: int | None) -> int | None:
        """As `TextOutput.stop_reason`."""
        return self._text.stop_reason(stop_token_id)

    def push(self, token_ids: Sequence[int]) -> OutputDelta:
        """Take the next tokens; those behind a stop string or behind the last call are left."""
        if self._parser is None:
            return OutputDelta(self._text.push(token_ids), None)
        if len(token_ids) == 1:
            return OutputDelta(*self._push_one(self._parser, token_ids[0]))
        # One at a time: each counts as reasoning or not, however many came together.
        texts: list[TextDelta] = []
        answers: list[AnswerDelta] = []
        for token_id in token_ids:
            text, answer = self._push_one(self._parser, token_id)
            texts.append(text)
            answers.append(answer)
            if text.stopped or self.too_many_calls:
                break
        return OutputDelta(_join(texts), join_deltas(answers))

    def finish(self) -> OutputDelta:
        """End the answer: give what is still held back."""
        text = self._text.finish()
        if self._parser is None:
            return OutputDelta(text, None)
        answer = join_deltas([self._parser.feed(text.text), self._parser.flush()])
        return OutputDelta(text, self._shown(answer))

    def _push_one(self, parser: AnswerParser, token_id: int) -> tuple[TextDelta, AnswerDelta]:
        before = parser.in_reasoning
        text = self._text.push([token_id])
        answer = parser.feed(text.text) if text.text else AnswerDelta()
        reasons = (before or parser.in_reasoning) and token_id not in self._end_token_ids
        if self.num_reasoning_tokens is not None and reasons:
            self.num_reasoning_tokens += text.num_tokens
        if text.stopped:
            answer = join_deltas([answer, parser.flush()])
        return text, self._shown(answer)

    def _shown(self, answer: AnswerDelta) -> AnswerDelta:
        if answer.reasoning and self._hide_reasoning:
            answer = msgspec.structs.replace(answer, reasoning="")
        if not answer.tool_calls:
            return answer
        self.called = not self._forced
        first = tuple(call for call in answer.tool_calls if call.index == 0)
        if self._one_call and len(first) < len(answer.tool_calls):
            self.too_many_calls = True
            answer = msgspec.structs.replace(answer, tool_calls=first)
        return answer


def _ids(parser: AnswerParser | None, tokenizer: Tokenizer) -> frozenset[int]:
    """Markers that are tokens of their own."""
    tags = () if parser is None else parser.tags
    found = (tokenizer.token_to_id(tag) for tag in tags)
    return frozenset(token_id for token_id in found if token_id is not None)


def _join(deltas: Sequence[TextDelta]) -> TextDelta:
    offsets = [delta.text_offsets for delta in deltas]
    return TextDelta(
        text="".join(delta.text for delta in deltas),
        num_tokens=sum(delta.num_tokens for delta in deltas),
        stop_string=deltas[-1].stop_string if deltas else None,
        text_offsets=tuple(offset for part in offsets if part is not None for offset in part)
        if offsets and offsets[0] is not None
        else None,
    )
