"""A tokenizer.json with one token more, which ends answers whatever the model's own tokens are.

Which ids end an answer is each request's say, so none of the model's may mean the end to the
library that makes masks.
"""

from __future__ import annotations

import msgspec

from pegainfer_core.grammar.grammar_text import GrammarProblem

__all__ = ["with_end_token"]


class _Model(msgspec.Struct):
    vocab: dict[str, int] | list[msgspec.Raw]


class _AddedToken(msgspec.Struct):
    id: int
    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    special: bool = True


def with_end_token(text: str) -> tuple[str, int]:
    """The text with that token, and the token's id, the first behind all others.

    Raises:
        GrammarProblem: The text is no tokenizer.json.
    """
    try:
        parts = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        vocab = msgspec.json.decode(parts["model"], type=_Model).vocab
        added = msgspec.json.decode(parts.get("added_tokens", b"[]"), type=list[_AddedToken])
    except (msgspec.DecodeError, KeyError) as error:
        raise GrammarProblem(f"is not possible with this tokenizer: {error}") from error
    highest = max(vocab.values(), default=-1) if isinstance(vocab, dict) else len(vocab) - 1
    end_id = 1 + max([highest, *(token.id for token in added)])
    content = f"<|end of the answer {end_id}|>"
    added.append(_AddedToken(id=end_id, content=content))
    parts["added_tokens"] = msgspec.Raw(msgspec.json.encode(added))
    return msgspec.json.encode(parts).decode(), end_id
