"""Forms that put markers between a call's name and the JSON of its arguments."""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from pegainfer_core.text.parsing.call_grammar import (
    CallableFunction,
    Marker,
    json_rule,
    lark_text,
)
from pegainfer_core.text.parsing.json_text import ends_in_string, parse_object
from pegainfer_core.text.parsing.protocol import Tools
from pegainfer_core.text.parsing.tool_format import WrittenCall

__all__ = ["DeepSeekFormat", "KimiFormat"]

# V3 and R1 write "function", the marker, the name and a fenced block; V3.1 the name at once.
_FENCED: Final = re.compile(r"\s*([^\s`]+)\s*\n```(?:json)?\n(.*)\n```\s*", re.DOTALL)
_ANY: Final = {"type": "object"}
_KIMI_ID: Final = re.compile(r"(?:functions\.)?([^\s:]+):\d+")


class _MarkedJson(ABC):
    """A block is opening, head, separator, tail, closing."""

    blocks: Mapping[str, str]
    heads: Collection[str]
    tails: Collection[str]
    tags: tuple[str, ...]
    separator: str

    def is_open(self, block: str) -> bool:
        """Whether the block ends inside a string of the arguments."""
        return ends_in_string(self._parts(block)[1])

    def section(self, call: str, mark: Marker, *, many: bool) -> str:
        """Calls between the markers that announce and end them."""
        (head,), (tail,) = self.heads, self.tails
        calls = f'{call} ("\\n"? {call})*' if many else call
        return f"{mark(head)} {calls} {mark(tail)}"

    def call_rules(self, rule: str, function: CallableFunction, mark: Marker) -> str:
        """All ways of writing that are read."""
        ((opening, closing),) = self.blocks.items()
        arguments = f"{rule}_arguments"
        ways = self._ways(function.name, mark(self.separator), arguments)
        schema = json_rule(function.parameters or _ANY, strict=function.strict)
        return f"{rule}: {mark(opening)} ({ways}) {mark(closing)}\n{arguments}: {schema}\n"

    @abstractmethod
    def _ways(self, name: str, separator: str, arguments: str) -> str:
        """What may stand between the markers of a block."""

    def _parts(self, block: str) -> tuple[str, str]:
        ((opening, closing),) = self.blocks.items()
        head, _, tail = block.removeprefix(opening).partition(self.separator)
        return head.strip(), tail.removesuffix(closing)


class DeepSeekFormat(_MarkedJson):
    """DeepSeek V3, R1 and V3.1; implements `ToolFormat` and `CallFormat`."""

    blocks = MappingProxyType({"<｜tool▁call▁begin｜>": "<｜tool▁call▁end｜>"})
    heads = ("<｜tool▁calls▁begin｜>",)
    tails = ("<｜tool▁calls▁end｜>",)
    separator = "<｜tool▁sep｜>"
    tags = (*heads, *tails, *blocks, *blocks.values(), separator)

    def read(self, block: str, tools: Tools) -> WrittenCall | None:
        """Either of the two ways to write a call."""
        name, arguments = self._parts(block)
        fenced = _FENCED.fullmatch(arguments)
        if name == "function" and fenced:
            name, arguments = fenced[1], fenced[2]
        if not name or parse_object(arguments) is None:
            return None
        return WrittenCall(name, arguments.strip())

    def _ways(self, name: str, separator: str, arguments: str) -> str:
        begin, end = lark_text(f"{name}\n```json\n"), lark_text("\n```")
        fenced = f'"function" {separator} {begin} {arguments} {end}'
        return f"{fenced} | {lark_text(name)} {separator} {arguments}"


class KimiFormat(_MarkedJson):
    """Kimi K2, whose calls have ids such as `functions.weather:0`.

    Implements `ToolFormat` and `CallFormat`.
    """

    blocks = MappingProxyType({"<|tool_call_begin|>": "<|tool_call_end|>"})
    heads = ("<|tool_calls_section_begin|>",)
    tails = ("<|tool_calls_section_end|>",)
    separator = "<|tool_call_argument_begin|>"
    tags = (*heads, *tails, *blocks, *blocks.values(), separator)

    def read(self, block: str, tools: Tools) -> WrittenCall | None:
        """The id, which holds the name, and the arguments."""
        call_id, arguments = self._parts(block)
        match = _KIMI_ID.fullmatch(call_id)
        if match is None or parse_object(arguments) is None:
            return None
        return WrittenCall(match[1], arguments.strip(), call_id)

    def _ways(self, name: str, separator: str, arguments: str) -> str:
        return f"{lark_text(f'functions.{name}:')} /[0-9]{{1,3}}/ {separator} {arguments}"
