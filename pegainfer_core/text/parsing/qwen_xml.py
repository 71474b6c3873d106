"""The form of Qwen3-Coder and Qwen3.5: parameters between tags, their types in the tool's schema.

`<tool_call><function=NAME><parameter=KEY>VALUE</parameter>...</function></tool_call>`; models leave
out the outer tags now and then.
"""

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pegainfer_core.text.parsing.call_grammar import (
    CallableFunction,
    Marker,
    any_text,
    lark_text,
)
from pegainfer_core.text.parsing.protocol import Tools
from pegainfer_core.text.parsing.tool_format import WrittenCall
from pegainfer_core.text.parsing.xml_value import value_of, value_rules

__all__ = ["QwenXmlFormat"]

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_FUNCTION, _END_FUNCTION = "<function=", "</function>"
_PARAMETER = "<parameter="
_BREAK: Final = "\n"
_VALUE_CLOSE: Final = "\n</parameter>\n"
_BLOCK: Final = re.compile(
    r"\s*(?:<tool_call>)?\s*<function=([^<>\s]+)>(.*)</function>\s*(?:</tool_call>)?\s*", re.DOTALL
)
# A value may hold the closing tag; the one that counts has a tag or nothing behind it.
_VALUE: Final = re.compile(
    r"\s*<parameter=([^<>]+)>\n?(.*?)\n?</parameter>(?=\s*(?:<parameter=|\Z))", re.DOTALL
)
_VALUE_END: Final = re.compile(r"</parameter>\s*(?:</function>|\Z)")


class QwenXmlFormat:
    """Implements `ToolFormat` and `CallFormat`."""

    blocks = MappingProxyType({_OPEN: _CLOSE, _FUNCTION: _END_FUNCTION})
    heads = ()
    tails = (_CLOSE,)
    tags = (_OPEN, _CLOSE)

    def read(self, block: str, tools: Tools) -> WrittenCall | None:
        """A function with parameters, each given once."""
        match = _BLOCK.fullmatch(block)
        if match is None:
            return None
        name, body = match[1], match[2]
        root = _parameters(name, tools)
        declared = root.get("properties")
        schemas = declared if isinstance(declared, Mapping) else {}
        arguments: dict[str, object] = {}
        place = 0
        for value in _VALUE.finditer(body):
            key = value[1].strip()
            if value.start() != place or key in arguments:
                return None
            schema = schemas.get(key, {"type": "string"})
            arguments[key] = value_of(value[2], schema, root)
            place = value.end()
        if body[place:].strip():
            return None
        return WrittenCall(name, json.dumps(arguments, ensure_ascii=False))

    def is_open(self, block: str) -> bool:
        """Whether the block ends inside a parameter's value."""
        last = block.rfind(_PARAMETER)
        return last >= 0 and not _VALUE_END.search(block, last)

    def section(self, call: str, mark: Marker, *, many: bool) -> str:
        """Calls one below the other."""
        return f'{call} ("\\n" {call})*' if many else call

    def call_rules(self, rule: str, function: CallableFunction, mark: Marker) -> str:
        """Parameters in the order of their declaration, with the outer tags."""
        schema = function.parameters
        declared = schema.get("properties")
        properties = declared if isinstance(declared, Mapping) else {}
        needed = schema.get("required")
        required = needed if isinstance(needed, list) else []
        parts, rules = [], ""
        for number, (key, value) in enumerate(properties.items()):
            name = f"{rule}_{number}"
            parts.append(name if key in required else f"{name}?")
            rules += _parameter_rules(name, str(key), value, function)
        closed = function.strict or schema.get("additionalProperties") is False
        if not isinstance(declared, Mapping) and not closed:
            parts.append(f"{rule}_any*")
            rules += f"{rule}_any: {lark_text(_PARAMETER)} /[^<>\\n]+/ {lark_text('>' + _BREAK)} "
            rules += f"{rule}_rest\n{any_text(f'{rule}_rest', _VALUE_CLOSE)}"
        head = lark_text(f"\n{_FUNCTION}{function.name}>\n")
        tail = f"{lark_text(f'{_END_FUNCTION}{_BREAK}')} {mark(_CLOSE)}"
        return f"{rule}: {mark(_OPEN)} {head} {' '.join(parts)} {tail}\n{rules}"


def _parameter_rules(rule: str, key: str, schema: object, function: CallableFunction) -> str:
    """Rules of a parameter: JSON where the schema allows no text, else text."""
    value = f"{rule}_value"
    rules = value_rules(value, schema, function, _VALUE_CLOSE) or any_text(value, _VALUE_CLOSE)
    return f"{rule}: {lark_text(f'{_PARAMETER}{key}>{_BREAK}')} {value}\n{rules}"


def _parameters(name: str, tools: Tools) -> Mapping[str, object]:
    """The schema of a declared function's arguments."""
    for tool in tools:
        function = tool.get("function")
        if isinstance(function, Mapping) and function.get("name") == name:
            parameters = function.get("parameters")
            return parameters if isinstance(parameters, Mapping) else {}
    return {}
