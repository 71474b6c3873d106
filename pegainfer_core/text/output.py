"""Text of one answer from its token ids: detokenising, stop strings and token positions together.

Knows no protocol and no engine; the server and the offline API both build answers with it, so that
streamed and whole answers are the same text.
"""

from collections.abc import Collection, Sequence

import msgspec

from pegainfer_core.text.detokenizer import IncrementalDetokenizer
from pegainfer_core.text.stop import StopMatcher
from pegainfer_core.text.tokenizer import Tokenizer

__all__ = ["TextDelta", "TextOutput"]


class TextDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What some pushed tokens add to an answer.

    Attributes:
        text: newly visible text; may be empty, and may belong to earlier tokens.
        num_tokens: how many of the pushed tokens belong to the answer. Fewer than were pushed
            when one of them completed a stop string: ids, logprobs and usage end there.
        stop_string: the stop string that has ended the answer, now or earlier, or None.
        text_offsets: for each of the `num_tokens` tokens, the character of the answer at which
            it starts (see `TextOutput`); None unless asked for.
    """

    text: str
    num_tokens: int
    stop_string: str | None = None
    text_offsets: tuple[int, ...] | None = None

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended the answer."""
        return self.stop_string is not None


class TextOutput:
    """Builds the visible text of one answer; one object a request and choice.

    Text is held back while it is an incomplete character or could begin a stop string; `finish`
    gives what is left. A hidden special token ends the answer when a stop string spells it.

    A token's offset is the number of characters complete before it, whether shown yet or not. All
    tokens of one character share its offset, a hidden token has the offset of what follows, and
    offsets go on past text that a stop string cuts away.

    Attributes:
        num_tokens: tokens of the answer so far.
        stop_string: the stop string that has ended the answer, or None.
    """

    __slots__ = (
        "_detokenizer",
        "_end_ids",
        "_hidden_ids",
        "_min_tokens",
        "_next_offset",
        "_own_ids",
        "_silent_ids",
        "_simple",
        "_stop",
        "_tokenizer",
        "_want_offsets",
        "num_tokens",
    )

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stop: Sequence[str] = (),
        include_stop_str_in_output: bool = False,
        skip_special_tokens: bool = True,
        shown_ids: frozenset[int] = frozenset(),
        end_token_ids: Collection[int] = (),
        stop_token_ids: Collection[int] = (),
        min_tokens: int = 0,
        text_offsets: bool = False,
        base_offset_chars: int = 0,
    ) -> None:
        """Prepare for one answer.

        Args:
            tokenizer: of the model.
            stop: stop strings.
            include_stop_str_in_output: show the stop string, or the client's stop token.
            skip_special_tokens: hide special tokens.
            shown_ids: special tokens shown all the same, such as the markers of tool calls.
            end_token_ids: the model's end tokens, empty when the request ignores them. They
                have no text, whatever the other settings say.
            stop_token_ids: the client's own, end tokens among them or not. Without text too,
                unless `include_stop_str_in_output`.
            min_tokens: stop strings are looked for in the text after so many tokens.
            text_offsets: work out `TextDelta.text_offsets`.
            base_offset_chars: offset of the first token, as for text behind an echoed prompt.

        Raises:
            ValueError: a stop string is empty.
        """
        self._tokenizer = tokenizer
        self._detokenizer = IncrementalDetokenizer.for_tokenizer(
            tokenizer, skip_special_tokens=skip_special_tokens, shown_ids=shown_ids
        )
        self._stop = StopMatcher(stop, include_stop=include_stop_str_in_output) if stop else None
        self._hidden_ids = tokenizer.special_ids - shown_ids if skip_special_tokens else frozenset()
        self._end_ids = frozenset(end_token_ids)
        self._own_ids = frozenset(stop_token_ids)
        unwanted = frozenset() if include_stop_str_in_output else self._own_ids
        self._silent_ids = (self._end_ids - self._own_ids) | unwanted
        self._min_tokens = min_tokens
        self._want_offsets = text_offsets
        self._next_offset = base_offset_chars
        self._simple = self._stop is None and not text_offsets
        self.num_tokens = 0

    @property
    def stop_string(self) -> str | None:
        """The stop string that has ended the answer, or None."""
        return None if self._stop is None else self._stop.matched

    def stop_reason(self, stop_token_id: int | None) -> int | None:
        """What to call the cause of an answer that a token has ended.

        Args:
            stop_token_id: the token, None when there was none.

        Returns:
            The id if only the client has declared it; None for the model's own end tokens, whose
            end it is even when the client names them too.
        """
        return stop_token_id if stop_token_id in self._own_ids - self._end_ids else None

    def push(self, token_ids: Sequence[int]) -> TextDelta:
        """Take the next tokens, in order. After a stop string nothing more is taken."""
        if self._simple and self._silent_ids.isdisjoint(token_ids):
            self.num_tokens += len(token_ids)
            feed = self._detokenizer.feed
            text = feed(token_ids[0]) if len(token_ids) == 1 else "".join(map(feed, token_ids))
            return TextDelta(text=text, num_tokens=len(token_ids))
        return self._push_each(token_ids)

    def finish(self) -> TextDelta:
        """End the answer: give the text still held back. A stop string may be found even here."""
        text = ""
        if self.stop_string is None:
            text = self._detokenizer.flush()
            if self._stop is not None:
                text = self._stop.push(text) + self._stop.flush()
        offsets = () if self._want_offsets else None
        return TextDelta(
            text=text, num_tokens=0, stop_string=self.stop_string, text_offsets=offsets
        )

    def _push_each(self, token_ids: Sequence[int]) -> TextDelta:
        parts: list[str] = []
        offsets: list[int] = []
        for token_id in token_ids:
            if self.stop_string is not None:
                break
            offsets.append(self._next_offset)
            self.num_tokens += 1
            parts.append(self._push_one(token_id))
        return TextDelta(
            text="".join(parts),
            num_tokens=len(offsets),
            stop_string=self.stop_string,
            text_offsets=tuple(offsets) if self._want_offsets else None,
        )

    def _push_one(self, token_id: int) -> str:
        if token_id in self._silent_ids:
            return ""
        text = self._detokenizer.feed(token_id)
        self._next_offset += len(text)
        if self._stop is None or self.num_tokens <= self._min_tokens:
            return text
        if text:
            return self._stop.push(text)
        if token_id in self._hidden_ids:
            hidden = self._tokenizer.token_text(token_id)
            return self._stop.push_hidden(hidden, self._detokenizer.pending())
        return ""
