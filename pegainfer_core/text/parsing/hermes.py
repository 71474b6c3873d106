"""The form of Hermes and Qwen3: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""

import json
from types import MappingProxyType
from typing import Final

import msgspec

from pegainfer_core.text.parsing.call_grammar import (
    CallableFunction,
    Marker,
    json_rule,
    lark_text,
)
from pegainfer_core.text.parsing.json_text import ends_in_string, parse_object
from pegainfer_core.text.parsing.protocol import Tools
from pegainfer_core.text.parsing.tool_format import WrittenCall

__all__ = ["HermesFormat"]

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_ANY: Final = {"type": "object"}


class _Body(msgspec.Struct):
    """Keeps the arguments as they were written: numbers and order are the model's."""

    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class HermesFormat:
    """Implements `ToolFormat` and `CallFormat`."""

    blocks = MappingProxyType({_OPEN: _CLOSE})
    heads = ()
    tails = ()
    tags = (_OPEN, _CLOSE)

    def read(self, block: str, tools: Tools) -> WrittenCall | None:
        """One object; arguments may be left out, or be JSON text in a string."""
        body = _inside(block)
        parsed = parse_object(body)
        if parsed is None or not isinstance(parsed.get("name"), str) or not parsed["name"]:
            return None
        name, arguments = str(parsed["name"]), parsed.get("arguments")
        if arguments is None:
            return WrittenCall(name, "{}")
        if isinstance(arguments, str):
            return None if parse_object(arguments) is None else WrittenCall(name, arguments)
        if not isinstance(arguments, dict):
            return None
        raw = msgspec.json.decode(body, type=_Body).arguments
        return WrittenCall(name, bytes(raw).decode().strip())

    def is_open(self, block: str) -> bool:
        """Whether the block ends inside a JSON string."""
        return ends_in_string(_inside(block))

    def section(self, call: str, mark: Marker, *, many: bool) -> str:
        """Calls one below the other."""
        return f'{call} ("\\n" {call})*' if many else call

    def call_rules(self, rule: str, function: CallableFunction, mark: Marker) -> str:
        """The one way of writing that chat templates show."""
        name = json.dumps(function.name, ensure_ascii=False)
        head = lark_text(f'\n{{"name": {name}, "arguments": ')
        arguments = json_rule(function.parameters or _ANY, strict=function.strict)
        tail = lark_text("}\n")
        return f"{rule}: {mark(_OPEN)} {head} {arguments} {tail} {mark(_CLOSE)}\n"


def _inside(block: str) -> str:
    return block.removeprefix(_OPEN).removesuffix(_CLOSE)
