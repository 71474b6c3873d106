"""The form of Qwen3-Coder and Qwen3.5: parameters between tags, their types in the tool's schema.

`<tool_call><function=NAME><parameter=KEY>VALUE</parameter>...</function></tool_call>`; models leave
out the outer tags now and then.
"""

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pegainfer_core.text.parsing.json_text import parse_json
from pegainfer_core.text.parsing.protocol import Tools
from pegainfer_core.text.parsing.tool_format import WrittenCall

__all__ = ["QwenXmlFormat"]

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_FUNCTION, _END_FUNCTION = "<function=", "</function>"
_PARAMETER = "<parameter="
_BLOCK: Final = re.compile(
    r"\s*(?:<tool_call>)?\s*<function=([^<>\s]+)>(.*)</function>\s*(?:</tool_call>)?\s*", re.DOTALL
)
# A value may hold the closing tag; the one that counts has a tag or nothing behind it.
_VALUE: Final = re.compile(
    r"\s*<parameter=([^<>]+)>\n?(.*?)\n?</parameter>(?=\s*(?:<parameter=|\Z))", re.DOTALL
)
_VALUE_END: Final = re.compile(r"</parameter>\s*(?:</function>|\Z)")
_PYTHON_WORDS: Final = {"True": "true", "False": "false", "None": "null"}
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


class QwenXmlFormat:
    """Implements `ToolFormat`."""

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
        schemas = _schemas(name, tools)
        arguments: dict[str, object] = {}
        place = 0
        for value in _VALUE.finditer(body):
            key = value[1].strip()
            if value.start() != place or key in arguments:
                return None
            arguments[key] = _typed(value[2], schemas.get(key, {"type": "string"}))
            place = value.end()
        if body[place:].strip():
            return None
        return WrittenCall(name, json.dumps(arguments, ensure_ascii=False))

    def is_open(self, block: str) -> bool:
        """Whether the block ends inside a parameter's value."""
        last = block.rfind(_PARAMETER)
        return last >= 0 and not _VALUE_END.search(block, last)


def _schemas(name: str, tools: Tools) -> Mapping[str, object]:
    """The schema of each parameter of a declared function."""
    for tool in tools:
        function = tool.get("function")
        if isinstance(function, Mapping) and function.get("name") == name:
            parameters = function.get("parameters")
            properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
            return properties if isinstance(properties, Mapping) else {}
    return {}


def _typed(text: str, schema: object) -> object:
    """The value that a text stands for; the text itself where the schema allows no other."""
    types = _types(schema)
    if types and not types - {"string"}:
        return text
    try:
        value = parse_json(_PYTHON_WORDS.get(text, text))
    except ValueError:
        return text
    if not types:
        return value
    if "string" in types:
        # A text may spell anything; only nothing at all is told apart.
        return None if value is None and "null" in types else text
    fits = any(type(value) in _TYPES.get(name, ()) for name in types)
    return value if fits else text


def _types(schema: object) -> frozenset[str]:
    """Names of the types a schema names; none when it says nothing of them."""
    if not isinstance(schema, Mapping):
        return frozenset()
    declared = schema.get("type")
    if isinstance(declared, str):
        return frozenset({declared})
    if isinstance(declared, list):
        return frozenset(map(str, declared))
    choices = schema.get("anyOf") or schema.get("oneOf")
    if not isinstance(choices, list):
        return frozenset()
    found = [_types(choice) for choice in choices]
    return frozenset().union(*found) if all(found) else frozenset()
