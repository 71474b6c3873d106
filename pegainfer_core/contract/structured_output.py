"""The form that an answer must have: a grammar as text. Knows no library that reads grammars."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

MAX_GRAMMAR_CHARS = 1 << 17
"""Longest text of a schema, regular expression or grammar."""

StructuredKind = Literal["json_schema", "json_object", "regex", "choice", "grammar"]


class StructuredOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an answer may be; every token that would leave the form is masked.

    The form ends the answer: end tokens are possible where it is complete and nowhere else.

    Attributes:
        kind: What `text` is: the JSON text of a JSON schema; nothing (any JSON object); a regular
            expression for the whole answer, without look-around; the JSON text of a list of
            answers; or a grammar in llguidance's variant of Lark, whose rule `start` is the answer.
        text: See `kind`.
        strict: Whether keywords of a schema that cannot be enforced are refused; they are ignored
            otherwise.
        reasoning_end_id: The token that ends reasoning; the form holds for what follows the first
            of them. None: it holds from the first token on.
        reasoning_start_id: With `reasoning_end_id`: the token with which reasoning may begin, at
            the answer's very start and nowhere else. None: the prompt has begun it.
    """

    kind: StructuredKind
    text: str = ""
    strict: bool = True
    reasoning_end_id: int | None = None
    reasoning_start_id: int | None = None

    def problem(self, vocab_size: int) -> str | None:
        """What is wrong with the fields, short of reading the grammar, as a clause.

        Args:
            vocab_size: Rows of the embedding; ids must be below it.
        """
        if self.kind not in get_args(StructuredKind):
            return f"is of no kind {self.kind!r}; there are {', '.join(get_args(StructuredKind))}"
        if len(self.text) > MAX_GRAMMAR_CHARS:
            size = f"{len(self.text)} characters"
            return f"has {size} of {self.kind}, at most {MAX_GRAMMAR_CHARS} are allowed"
        if self.kind == "json_object":
            if self.text:
                return "has a text, which json_object takes none of; use json_schema"
        elif not self.text:
            return f"has an empty {self.kind}"
        if self.reasoning_start_id is not None and self.reasoning_end_id is None:
            return "has a reasoning_start_id and no reasoning_end_id"
        for token_id in (self.reasoning_start_id, self.reasoning_end_id):
            if token_id is not None and not 0 <= token_id < vocab_size:
                return f"names token id {token_id}, outside the vocabulary of {vocab_size}"
        return None
