"""Chat messages as clients send them, brought to the one shape that templates are written for.

Knows the OpenAI message forms; knows no template.

Rules: text parts are joined with a newline; content that is null, absent or an empty list is "";
other fields that are null, and empty lists of tool calls, are dropped; reasoning is found under
`reasoning_content`, `reasoning` and `thinking`, whichever name it came with. What a template gets
is a copy of plain JSON values.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Literal, NoReturn

from pegainfer_core.text.errors import ChatTemplateError

__all__ = ["ArgumentsForm", "normalise_messages", "plain_value"]

#: How a template wants the arguments of tool calls: as a mapping to walk, or as JSON text.
ArgumentsForm = Literal["mapping", "text"]

_PART_SEPARATOR = "\n"
#: Schemas of tools rarely pass twenty; the interpreter's stack bears a few hundred.
_MAX_LEVELS = 100
_SHOWN_CHARS = 80
_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_REASONING_NAMES = ("reasoning_content", "reasoning", "thinking")


def normalise_messages(
    messages: Sequence[Mapping[str, object]], arguments: ArgumentsForm
) -> list[dict[str, object]]:
    """Fresh messages with string content and arguments in the wanted form.

    Args:
        messages: as decoded from JSON; at least one.
        arguments: the form of tool call arguments.

    Raises:
        ChatTemplateError: no messages, a wrong shape, a part that is not text, or arguments that
            are not the JSON text of an object; `param` says where.
    """
    if not messages:
        raise ChatTemplateError("messages must not be empty", "messages")
    return [
        _message(message, arguments, f"messages[{index}]") for index, message in enumerate(messages)
    ]


def plain_value(value: object, where: str, levels: int = _MAX_LEVELS) -> object:
    """A copy of a JSON value that shares nothing with it.

    Args:
        value: the value.
        where: its place, for messages.
        levels: how many lists and mappings may lie in each other.

    Raises:
        ChatTemplateError: something in it is not a JSON value, or is nested too deeply.
    """
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if not isinstance(value, (Mapping, list, tuple)):
        _refuse(f"must be a JSON value, not {type(value).__name__}", where)
    if not levels:
        _refuse(f"is nested more than {_MAX_LEVELS} levels deep", where[:_SHOWN_CHARS])
    if isinstance(value, Mapping):
        return {
            str(key): plain_value(item, f"{where}.{key}", levels - 1) for key, item in value.items()
        }
    return [plain_value(item, f"{where}[{index}]", levels - 1) for index, item in enumerate(value)]


def _refuse(fault: str, where: str) -> NoReturn:
    raise ChatTemplateError(f"{where} {fault}", where)


def _shown(value: object) -> str:
    return repr(value)[:_SHOWN_CHARS]


def _message(
    message: Mapping[str, object], arguments: ArgumentsForm, where: str
) -> dict[str, object]:
    if not isinstance(message, Mapping):
        _refuse(f"must be an object, not {type(message).__name__}", where)
    if not isinstance(message.get("role"), str):
        _refuse(f"must be a string, not {_shown(message.get('role'))}", f"{where}.role")
    shaped: dict[str, object] = {}
    for name, value in message.items():
        if name == "content" or value is None or (name == "tool_calls" and value == []):
            continue
        if name == "tool_calls":
            shaped[name] = _tool_calls(value, arguments, f"{where}.{name}")
        else:
            shaped[name] = plain_value(value, f"{where}.{name}")
    shaped["content"] = _content(message.get("content"), f"{where}.content")
    reasoning = next((shaped[name] for name in _REASONING_NAMES if name in shaped), None)
    if reasoning is not None:
        shaped.update(dict.fromkeys(_REASONING_NAMES, reasoning))
    return shaped


def _content(content: object, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, (list, tuple)):
        _refuse(f"must be a string or a list of parts, not {type(content).__name__}", where)
    texts = [_part(part, f"{where}[{index}]") for index, part in enumerate(content)]
    return _PART_SEPARATOR.join(texts)


def _part(part: object, where: str) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        _refuse(f"must be a part object, not {type(part).__name__}", where)
    kind = part.get("type")
    name = _TEXT_PARTS.get(kind) if isinstance(kind, str) else None
    if name is None:
        _refuse(f"has type {_shown(kind)}; this model takes text parts only", where)
    text = part.get(name)
    if not isinstance(text, str):
        _refuse(f"must hold its text as a string, not {_shown(text)}", where)
    return text


def _tool_calls(calls: object, arguments: ArgumentsForm, where: str) -> list[object]:
    if not isinstance(calls, (list, tuple)):
        _refuse(f"must be a list, not {type(calls).__name__}", where)
    return [_tool_call(call, arguments, f"{where}[{i}]") for i, call in enumerate(calls)]


def _tool_call(call: object, arguments: ArgumentsForm, where: str) -> object:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        _refuse("must be an object with a function", where)
    if not isinstance(function.get("name"), str):
        _refuse(f"must be a string, not {_shown(function.get('name'))}", f"{where}.function.name")
    place = f"{where}.function.arguments"
    shaped = {name: plain_value(value, f"{where}.{name}") for name, value in call.items()}
    shaped["function"] = {
        **{
            name: plain_value(value, f"{where}.function.{name}") for name, value in function.items()
        },
        "arguments": _arguments(function.get("arguments"), arguments, place),
    }
    return shaped


def _arguments(value: object, form: ArgumentsForm, where: str) -> object:
    """Arguments come as JSON text; objects are taken too, and nothing at all means none."""
    if isinstance(value, str):
        parsed = _parse_object(value, where) if value.strip() else {}
        return parsed if form == "mapping" else value if value.strip() else "{}"
    if value is None or isinstance(value, Mapping):
        shaped = plain_value(value or {}, where)
        return shaped if form == "mapping" else json.dumps(shaped, ensure_ascii=False)
    _refuse(f"must be JSON text, not {type(value).__name__}", where)


def _parse_object(text: str, where: str) -> dict[str, object]:
    """Functions take named arguments, so anything but an object is refused, for every template."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as exc:
        _refuse(f"is not valid JSON: {exc}", where)
    if not isinstance(value, dict):
        _refuse(f"must be the JSON text of an object, not of {text[:40]!r}", where)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
