"""From the messages of a chat to the ids of its prompt, by the checkpoint's template."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from pegainfer_core.text import ChatTemplateError
from pegainfer_server.api_error import invalid
from pegainfer_server.far_too_long import refuse_far_too_long
from pegainfer_server.prompt import THREAD_CHARS, Prompt, encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pegainfer_core.text import ModelText
    from pegainfer_server.protocol.message import Message

MAX_MESSAGES = 16_384
MAX_KWARGS_BYTES = 64 << 10
MAX_TOOLS_BYTES = 1 << 20

_THREAD_MESSAGES = 64
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


async def chat_prompt(
    text: ModelText,
    messages: Sequence[Message],
    *,
    tools: Sequence[Mapping[str, object]] = (),
    template_kwargs: Mapping[str, object] | None,
    reasoning_effort: str | None = None,
    add_generation_prompt: bool | None = None,
    continue_final_message: bool | None = None,
    add_special_tokens: bool | None = None,
    limit_tokens: int | None = None,
) -> Prompt:
    """The prompt of a chat, rendered with the checkpoint's template.

    What cannot fit into `limit_tokens` is refused early.

    Raises:
        ApiError: 400 with the template's own words when it refuses the messages.
    """
    beside = _is_long(messages, tools, template_kwargs)
    continued = bool(continue_final_message)

    def render() -> str:
        return text.chat_template.render(
            [_template_message(message) for message in messages],
            tools=tools,
            add_generation_prompt=(
                not continued if add_generation_prompt is None else add_generation_prompt
            ),
            continue_final_message=continued,
            template_kwargs={
                **text.template_defaults,
                **_effort_kwargs(reasoning_effort),
                **(template_kwargs or {}),
            },
        )

    try:
        # Long ones on a thread, as the encoding of long texts: others' streams go on meanwhile.
        rendered = await asyncio.to_thread(render) if beside else render()
    except ChatTemplateError as error:
        raise invalid(str(error), error.param or "messages") from error
    if limit_tokens is not None:
        await refuse_far_too_long(text.tokenizer, {"messages": rendered}, limit_tokens)
    token_ids = await encode(text, rendered, bool(add_special_tokens), "messages")
    return Prompt(token_ids, rendered, _text_of(messages[-1]) if continued else "")


def _is_long(
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, object]],
    template_kwargs: Mapping[str, object] | None,
) -> bool:
    """Whether rendering takes its time.

    Raises:
        ApiError: 400, it would take too long.
    """
    if len(messages) > MAX_MESSAGES:
        raise invalid(f"{len(messages)} messages; at most {MAX_MESSAGES}", "messages")
    num_bytes = len(msgspec.json.encode(messages)) if len(messages) <= _THREAD_MESSAGES else 0
    for name, value, most in (
        ("tools", tools, MAX_TOOLS_BYTES),
        ("chat_template_kwargs", template_kwargs, MAX_KWARGS_BYTES),
    ):
        size = len(msgspec.json.encode(value)) if value else 0
        if size > most:
            raise invalid(f"{name} takes {size} bytes of JSON; at most {most}", name)
        num_bytes += size
    return num_bytes > THREAD_CHARS or len(messages) > _THREAD_MESSAGES


def _template_message(message: Message) -> Mapping[str, object]:
    """Templates know the older name of the developer's role."""
    fields: dict[str, object] = msgspec.to_builtins(message)
    if message.role == "developer":
        fields["role"] = "system"
    return fields


def _text_of(message: Message) -> str:
    """Its content as templates get it."""
    content = message.content
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content)
    return content if isinstance(content, str) else ""


def _effort_kwargs(effort: str | None) -> dict[str, object]:
    if effort is None:
        return {}
    if effort not in _EFFORTS:
        raise invalid(
            f"reasoning_effort must be one of {', '.join(_EFFORTS)}, not {effort[:40]!r}",
            "reasoning_effort",
        )
    thinking = effort != "none"
    return {"reasoning_effort": effort, "enable_thinking": thinking, "thinking": thinking}
