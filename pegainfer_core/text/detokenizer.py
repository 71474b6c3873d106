"""Token ids of one answer to text, piece by piece, without ever showing half a character.

Knows nothing of stop strings or of the prompt: the text of an answer is a function of its own ids.
A prompt given as ids may end inside a character; the answer then starts with bytes that continue
nothing, and these show as U+FFFD, streamed or not, exactly as `Tokenizer.decode` shows them.
"""

from abc import ABC, abstractmethod
from codecs import utf_8_decode
from typing import Final

from pegainfer_core.text.pieces import ByteLevelPieces
from pegainfer_core.text.tokenizer import Tokenizer

__all__ = ["IncrementalDetokenizer"]

_REPLACEMENT: Final = "\ufffd"


class IncrementalDetokenizer(ABC):
    """Text of a growing list of ids; all returned pieces joined equal `Tokenizer.decode`.

    One object a request; `for_tokenizer` makes it.
    """

    __slots__ = ()

    @staticmethod
    def for_tokenizer(
        tokenizer: Tokenizer,
        *,
        skip_special_tokens: bool = True,
        shown_ids: frozenset[int] = frozenset(),
    ) -> "IncrementalDetokenizer":
        """A detokenizer with no ids yet, of the kind that suits the tokenizer's decoder.

        Args:
            tokenizer: of the model.
            skip_special_tokens: hide special tokens.
            shown_ids: those shown all the same.
        """
        if tokenizer.byte_level:
            return _ByteLevelDetokenizer(tokenizer.pieces(skip_special_tokens, shown_ids))
        hidden = tokenizer.special_ids - shown_ids if skip_special_tokens else frozenset()
        return _WindowDetokenizer(tokenizer, hidden)

    @abstractmethod
    def feed(self, token_id: int) -> str:
        """Take one more id; return the text that it makes final, often that of earlier ids too."""

    @abstractmethod
    def pending(self) -> str:
        """What `flush` would return now."""

    @abstractmethod
    def flush(self) -> str:
        """End the answer: return the held-back text, incomplete characters as U+FFFD."""


class _ByteLevelDetokenizer(IncrementalDetokenizer):
    """Joins the tokens' bytes; holds back at most the three bytes of an unfinished character."""

    __slots__ = ("_pending", "_pieces")

    def __init__(self, pieces: ByteLevelPieces) -> None:
        self._pieces = pieces
        self._pending = b""

    def feed(self, token_id: int) -> str:
        piece = self._pieces[token_id]
        # Nearly every token takes this way; it is what keeps one core ahead of many streams.
        if not self._pending and type(piece) is str:
            return piece
        data = self._pending + (piece.encode("utf-8") if isinstance(piece, str) else piece)
        text, used = utf_8_decode(data, "replace", False)
        self._pending = data[used:]
        return text

    def pending(self) -> str:
        return self._pending.decode("utf-8", "replace")

    def flush(self) -> str:
        text, self._pending = self.pending(), b""
        return text


class _WindowDetokenizer(IncrementalDetokenizer):
    """Works for any decoder: decodes the last ids with and without the new ones and compares.

    The ids before (`_context`) are kept because decoders treat the start of a text apart. New ids
    (`_held`) wait while their text may still change: as long as it ends in U+FFFD and, since a
    byte-fallback decoder judges a run of byte tokens as a whole, until such a run has ended.
    """

    __slots__ = ("_context", "_held", "_hidden_ids", "_tokenizer")

    def __init__(self, tokenizer: Tokenizer, hidden_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._hidden_ids = hidden_ids
        self._context: list[int] = []
        self._held: list[int] = []

    def feed(self, token_id: int) -> str:
        piece = self._tokenizer.id_to_piece(token_id)
        if piece is None or token_id in self._hidden_ids:
            return ""
        self._held.append(token_id)
        if self._tokenizer.byte_fallback and piece.startswith("<0x"):
            return ""
        text = self.pending()
        if not text or text.endswith(_REPLACEMENT):
            return ""
        self._advance()
        return text

    def pending(self) -> str:
        if not self._held:
            return ""
        before = self._decode(self._context)
        return self._decode(self._context + self._held)[len(before) :]

    def flush(self) -> str:
        text = self.pending()
        self._advance()
        return text

    def _advance(self) -> None:
        """Held ids become the context, which must show something to stand for a text's middle."""
        self._context = self._held if self._decode(self._held) else self._context + self._held
        self._held = []

    def _decode(self, token_ids: list[int]) -> str:
        # No hidden id gets this far.
        return self._tokenizer.decode(token_ids, skip_special_tokens=False)
