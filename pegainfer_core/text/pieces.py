"""What each token id contributes to a text, worked out when an id is first met.

Knows vocabularies and decoders, not requests. A table that filled itself at start would cost a
151k vocabulary a quarter of a second and 20 MiB; an answer touches a few hundred ids.
"""

import json
import re
from typing import Final

import tokenizers

from pegainfer_core.text.byte_alphabet import token_text_to_bytes

__all__ = ["ByteLevelPieces", "TokenBytes", "uses_byte_fallback", "uses_byte_level"]

_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class ByteLevelPieces(dict[int, str | bytes]):
    """Token id to its text, or to its bytes when these alone are not valid UTF-8.

    Only for byte-level decoders. Ids that show nothing (hidden special tokens, padding of the
    vocabulary) map to "".
    """

    def __init__(self, backend: tokenizers.Tokenizer, hidden_ids: frozenset[int]) -> None:
        super().__init__()
        self._backend = backend
        self._hidden_ids = hidden_ids

    def __missing__(self, token_id: int) -> str | bytes:
        """Compute and remember the piece of a new id."""
        text = None if token_id in self._hidden_ids else self._backend.id_to_token(token_id)
        data = b"" if text is None else token_text_to_bytes(text)
        try:
            piece: str | bytes = data.decode("utf-8")
        except UnicodeDecodeError:
            piece = data
        self[token_id] = piece
        return piece


class TokenBytes(dict[int, bytes | None]):
    """Token id to the bytes it stands for in the middle of a text; None without an entry."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        super().__init__()
        self._backend = backend
        self._byte_level = uses_byte_level(backend)
        self._byte_fallback = uses_byte_fallback(backend)
        self._anchor_ids: list[int] | None = None

    def __missing__(self, token_id: int) -> bytes | None:
        """Compute and remember the bytes of a new id."""
        text = self._backend.id_to_token(token_id)
        data = None if text is None else self._spell(token_id, text)
        self[token_id] = data
        return data

    def _spell(self, token_id: int, text: str) -> bytes:
        if self._byte_level:
            return token_text_to_bytes(text)
        if self._byte_fallback and (match := _BYTE_TOKEN.fullmatch(text)):
            return bytes([int(match[1], 16)])
        # Other decoders treat the start of a text apart (a leading space is dropped), so the
        # token is decoded behind another one.
        anchor = self._anchor()
        before = self._backend.decode(anchor, skip_special_tokens=False)
        after = self._backend.decode([*anchor, token_id], skip_special_tokens=False)
        return after.removeprefix(before).encode("utf-8")

    def _anchor(self) -> list[int]:
        """Some token whose own text ends in a letter; none in a vocabulary without letters."""
        if self._anchor_ids is None:
            ids = range(self._backend.get_vocab_size())
            found = (i for i in ids if self._backend.decode([i])[-1:].isalpha())
            self._anchor_ids = [i for i in (next(found, None),) if i is not None]
        return self._anchor_ids


def _decoder_types(backend: tokenizers.Tokenizer) -> list[str]:
    """Type names of the decoder's steps, in order; empty without a decoder."""
    if backend.decoder is None:
        return []
    # The library shows its settings only through the pickling protocol.
    state = json.loads(backend.decoder.__getstate__())
    steps = state["decoders"] if state["type"] == "Sequence" else [state]
    return [step["type"] for step in steps]


def uses_byte_level(backend: tokenizers.Tokenizer) -> bool:
    """Whether a text is exactly the tokens' bytes one after the other, decoded as UTF-8."""
    return [kind for kind in _decoder_types(backend) if kind != "Fuse"] == ["ByteLevel"]


def uses_byte_fallback(backend: tokenizers.Tokenizer) -> bool:
    """Whether tokens such as `<0xE2>` stand for single bytes."""
    return "ByteFallback" in _decoder_types(backend)
