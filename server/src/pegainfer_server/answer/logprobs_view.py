"""Log-probabilities of a piece in the shapes that clients know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_server.protocol.logprobs import (
    ChatLogprob,
    ChatLogprobs,
    CompletionLogprobs,
    PromptLogprobs,
    RankedLogprob,
    TopLogprob,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.contract import TokenLogprobs
    from pegainfer_core.text import Tokenizer
    from pegainfer_server.generation import Piece

_LOWEST = -9999.0
"""Stands for minus infinity, which JSON cannot hold."""


class LogprobsView:
    """Shows log-probabilities with token texts, or with ids when the client wants these."""

    def __init__(self, tokenizer: Tokenizer, num_top: int, *, tokens_as_ids: bool) -> None:
        self._tokenizer = tokenizer
        self._num_top = num_top
        self._as_ids = tokens_as_ids

    def completion(self, piece: Piece) -> CompletionLogprobs:
        """Parallel lists; the chosen token is among the top ones, as an extra if need be."""
        entries = piece.logprobs or []
        return CompletionLogprobs(
            tokens=[self._name(token_id) for token_id in piece.token_ids],
            token_logprobs=[None if entry is None else _finite(entry.logprob) for entry in entries],
            top_logprobs=[
                None if entry is None else self._named_top(token_id, entry)
                for token_id, entry in zip(piece.token_ids, entries, strict=True)
            ],
            text_offset=list(piece.text_offsets),
        )

    def chat(self, piece: Piece) -> ChatLogprobs:
        """One entry a token with exactly the top tokens that were asked for."""
        pairs = zip(piece.token_ids, piece.logprobs or (), strict=True)
        return ChatLogprobs(
            [self._chat_entry(token_id, entry) for token_id, entry in pairs if entry is not None]
        )

    def prompt(
        self, token_ids: Sequence[int], entries: Sequence[TokenLogprobs | None]
    ) -> PromptLogprobs:
        """VLLM's form: the token itself, then the top ones, by id."""
        return [
            None if entry is None else self._ranked(token_id, entry)
            for token_id, entry in zip(token_ids, entries, strict=True)
        ]

    def _named_top(self, token_id: int, entry: TokenLogprobs) -> dict[str, float]:
        top: dict[str, float] = {}
        for top_id, logprob in self._top(entry):
            top.setdefault(self._name(top_id), _finite(logprob))
        top.setdefault(self._name(token_id), _finite(entry.logprob))
        return top

    def _chat_entry(self, token_id: int, entry: TokenLogprobs) -> ChatLogprob:
        return ChatLogprob(
            token=self._name(token_id),
            logprob=_finite(entry.logprob),
            bytes=self._bytes(token_id),
            top_logprobs=[
                TopLogprob(
                    token=self._name(top_id), logprob=_finite(logprob), bytes=self._bytes(top_id)
                )
                for top_id, logprob in self._top(entry)
            ],
        )

    def _ranked(self, token_id: int, entry: TokenLogprobs) -> dict[str, RankedLogprob]:
        ranked = {str(token_id): self._rank(token_id, entry.logprob, entry.rank)}
        for place, (top_id, logprob) in enumerate(self._top(entry), start=1):
            ranked.setdefault(str(top_id), self._rank(top_id, logprob, place))
        return ranked

    def _rank(self, token_id: int, logprob: float, rank: int) -> RankedLogprob:
        return RankedLogprob(
            logprob=_finite(logprob), rank=rank, decoded_token=self._tokenizer.token_text(token_id)
        )

    def _top(self, entry: TokenLogprobs) -> list[tuple[int, float]]:
        """The engine may know more than was asked for, as for an echoed prompt."""
        pairs = zip(entry.top_token_ids, entry.top_logprobs, strict=True)
        return list(pairs)[: self._num_top]

    def _name(self, token_id: int) -> str:
        return f"token_id:{token_id}" if self._as_ids else self._tokenizer.token_text(token_id)

    def _bytes(self, token_id: int) -> list[int] | None:
        data = self._tokenizer.token_bytes(token_id)
        return None if data is None else list(data)


def _finite(logprob: float) -> float:
    return max(logprob, _LOWEST)
