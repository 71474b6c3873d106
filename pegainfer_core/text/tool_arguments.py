"""Finding out in which form a chat template wants the arguments of tool calls.

Clients send JSON text. Most templates walk a mapping or write it as JSON themselves, and would
quote a text twice; some print or parse the text, and would show a mapping as Python does. Which of
the two a template is shows when it renders a known call both ways.
"""

import json
from collections.abc import Callable

from pegainfer_core.text.errors import ChatTemplateError
from pegainfer_core.text.messages import ArgumentsForm

__all__ = ["find_arguments_form"]

# Words that no template contains; nine letters and digits are an id that all templates accept.
_KEY, _VALUE, _CALL_ID = "qzargument", "qzvalue", "qzcall001"
_ARGUMENTS = {_KEY: _VALUE}

#: Renders messages with the given tools.
Renderer = Callable[[list[dict[str, object]], list[dict[str, object]] | None], str]


def find_arguments_form(render: Renderer) -> ArgumentsForm:
    """The form that appears undamaged in renderings; a mapping when both do, or neither.

    A mapping is damaged when it is printed as Python prints it, a text when its quotes are escaped.
    """
    if _survives(render, dict(_ARGUMENTS), damage=repr(_ARGUMENTS)):
        return "mapping"
    text = json.dumps(_ARGUMENTS)
    if _survives(render, text, damage=json.dumps(text)):
        return "text"
    return "mapping"


def _survives(render: Renderer, arguments: object, damage: str) -> bool:
    """Whether the first conversation that the template accepts shows the arguments as they are."""
    for with_tools in (True, False):
        for content in ("", "qzcontent"):
            try:
                text = render(_conversation(arguments, content), _tools() if with_tools else None)
            except ChatTemplateError:
                continue
            return _KEY in text and _VALUE in text and damage not in text
    return False


def _conversation(arguments: object, content: str) -> list[dict[str, object]]:
    function = {"name": "qzfunction", "arguments": arguments}
    call = {"id": _CALL_ID, "type": "function", "function": function}
    return [
        {"role": "user", "content": "qzquestion"},
        {"role": "assistant", "content": content, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": _CALL_ID, "name": "qzfunction", "content": "qzresult"},
    ]


def _tools() -> list[dict[str, object]]:
    parameters = {"type": "object", "properties": {}}
    function = {"name": "qzfunction", "description": "qz", "parameters": parameters}
    return [{"type": "function", "function": function}]
