"""Grammars of tool calls: what a model must write so that a parser reads calls of given functions.

The texts are rules of llguidance's variant of Lark, in which `%json` stands for a JSON schema and
`<[7]>` for token 7. Knows no library that reads them.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from pegainfer_core.text.parsing.protocol import ToolParserFactory

__all__ = [
    "CallFormat",
    "CallGrammar",
    "CallableFunction",
    "Marker",
    "any_text",
    "json_rule",
    "lark_text",
]

Marker = Callable[[str], str]
"""Gives the expression of a format's marker, which may be a token of its own."""


class CallableFunction(NamedTuple):
    """A function that may be called.

    Attributes:
        name: As declared.
        parameters: JSON schema of its arguments; empty for any object.
        strict: Whether keywords that cannot be enforced are an error; they are ignored otherwise.
    """

    name: str
    parameters: Mapping[str, object]
    strict: bool = False


class CallFormat(Protocol):
    """What a `ToolFormat` has beside it if calls in it can be enforced."""

    def section(self, call: str, mark: Marker, *, many: bool) -> str:
        """The expression of all calls of an answer, of which there is at least one.

        Args:
            call: The expression of one.
            mark: Gives the expressions of markers.
            many: Whether there may be more than one.
        """
        ...

    def call_rules(self, rule: str, function: CallableFunction, mark: Marker) -> str:
        """Rules of which one, named `rule`, is a call of a function.

        Args:
            rule: Others begin with this name and an underscore.
            function: That is called.
            mark: Gives the expressions of markers.
        """
        ...


@runtime_checkable
class CallGrammar(ToolParserFactory, Protocol):
    """A factory of tool parsers whose calls can be enforced."""

    @property
    def openings(self) -> Collection[str]:
        """Markers that begin a call."""
        ...

    def call_grammar(
        self, functions: Sequence[CallableFunction], mark: Marker, *, many: bool
    ) -> str:
        """Rules of which one, `calls`, is what an answer that calls consists of.

        Args:
            functions: That may be called.
            mark: Gives the expressions of markers.
            many: Whether there may be more than one call.
        """
        ...


def lark_text(text: str) -> str:
    """The expression of a text."""
    return json.dumps(text, ensure_ascii=False)


def json_rule(schema: Mapping[str, object], *, strict: bool) -> str:
    """The expression of JSON that a schema allows."""
    options = {} if strict else {"x-guidance": {"lenient": True}}
    return f"%json {json.dumps({**schema, **options}, ensure_ascii=False)}"


def any_text(rule: str, end: str) -> str:
    """Rules of which one, named `rule`, is any text with an end that it does not hold before."""
    terminal = f"{rule.upper()}_TEXT"
    return f"{rule}[lazy]: {terminal} {lark_text(end)}\n{terminal}: /(.|\\n)*/\n"
