"""From what a client sends to prompt token ids, with the room that is left for the answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

import msgspec

from pegainfer_core.contract import ContextLength, EmptyPrompt, InvalidToken
from pegainfer_core.text import ChatTemplateError, TextError
from pegainfer_server.api_error import invalid, rejected
from pegainfer_server.far_too_long import refuse_far_too_long
from pegainfer_server.protocol.sampling_fields import MAX_CHOICES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pegainfer_core.contract import RejectReason
    from pegainfer_core.text import ModelText
    from pegainfer_server.protocol.message import Message
    from pegainfer_server.served_model import ServedModel

MAX_MESSAGES = 16_384
MAX_KWARGS_BYTES = 64 << 10
MAX_TOOLS_BYTES = 1 << 20

_THREAD_CHARS = 20_000
_THREAD_MESSAGES = 64
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


class Prompt(NamedTuple):
    """Ids for the engine.

    Attributes:
        text: What the ids were made from, None for ids.
        continued: Text of the message that the answer continues, "" if it begins a new one.
        param: Field it came from.
    """

    token_ids: list[int]
    text: str | None
    continued: str = ""
    param: str = "prompt"


class CompletionInput(NamedTuple):
    """One prompt of a completion as it was sent, and where."""

    given: str | list[int]
    param: str


def completion_inputs(given: str | list[str | int | list[int]]) -> list[CompletionInput]:
    """Tell the four forms of a prompt apart: a text, ids, texts, lists of ids.

    Raises:
        ApiError: 400, a list that is none of these.
    """
    if isinstance(given, str):
        return [CompletionInput(given, "prompt")]
    kinds = set(map(type, given))
    if _are_ids(given):
        return [CompletionInput(given, "prompt")]
    if len(given) > MAX_CHOICES:
        raise invalid(f"{len(given)} prompts; at most {MAX_CHOICES} a request", "prompt")
    if kinds not in ({str}, {list}):
        raise invalid(
            "prompt must be a string, a list of token ids, a list of strings or a list of lists "
            "of token ids, not a mixture",
            "prompt",
        )
    return [
        CompletionInput(item, f"prompt[{index}]")
        for index, item in enumerate(given)
        if not isinstance(item, int)
    ]


async def completion_prompts(
    model: ServedModel,
    inputs: Sequence[CompletionInput],
    add_special_tokens: bool,
    *,
    must_fit: bool = False,
) -> list[Prompt]:
    """The prompts of a completion; those that must fit are refused early if they cannot.

    Raises:
        ApiError: 400, an unknown id, or text that has no UTF-8 form.
    """
    texts = {item.param: item.given for item in inputs if isinstance(item.given, str)}
    if must_fit:
        await refuse_far_too_long(model.tokenizer, texts, model.info.max_model_len)
    encoded = await _encode_all(model.text, texts, add_special_tokens)
    vocab_size = model.info.vocab_size
    prompts = []
    for given, param in inputs:
        if isinstance(given, str):
            prompts.append(Prompt(encoded[param], given, param=param))
            continue
        if given and not 0 <= min(given) <= max(given) < vocab_size:
            unknown = next(token_id for token_id in given if not 0 <= token_id < vocab_size)
            raise _refusal(InvalidToken(token_id=unknown, vocab_size=vocab_size), param)
        prompts.append(Prompt(given, None, param=param))
    return prompts


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
    token_ids = await _encode(text, rendered, bool(add_special_tokens), "messages")
    return Prompt(token_ids, rendered, _text_of(messages[-1]) if continued else "")


def fit_context(
    prompt: Prompt,
    limit_tokens: int,
    *,
    asked: int | None,
    default: int | None,
    truncate: int | None,
    param: str,
) -> tuple[Prompt, int | None]:
    """Cut the prompt if that was asked for, and settle how many tokens may be generated.

    What the client asks for must fit; a default is shortened to the room there is.

    Args:
        prompt: The whole prompt.
        limit_tokens: Context length.
        asked: The client's limit on generated tokens.
        default: Used when there is none; None fills the context.
        truncate: Keep this many of the last prompt tokens; -1 as many as leave room.
        param: Field the prompt came from.

    Returns:
        The prompt and the limit for the engine.

    Raises:
        ApiError: 400 `context_length_exceeded`, or an empty prompt.
    """
    if truncate is not None:
        wanted = asked if asked is not None else default or 1
        keep = truncate if truncate >= 0 else max(limit_tokens - wanted, 1)
        if keep < len(prompt.token_ids):
            kept = prompt.token_ids[len(prompt.token_ids) - keep :]
            prompt = Prompt(kept, None, param=prompt.param)
    num_prompt = len(prompt.token_ids)
    if not num_prompt:
        raise _refusal(EmptyPrompt(), param)
    needed = 1 if asked is None else asked
    if num_prompt + needed > limit_tokens:
        reason = ContextLength(
            prompt_tokens=num_prompt, max_tokens=needed, limit_tokens=limit_tokens
        )
        raise _refusal(reason, param)
    if asked is not None or default is None:
        return prompt, asked
    return prompt, min(default, limit_tokens - num_prompt)


def _are_ids(items: list[str | int | list[int]]) -> TypeGuard[list[int]]:
    """In one pass without a step of Python for each: prompts are long."""
    return set(map(type, items)) <= {int}


async def _encode(text: ModelText, content: str, add_special_tokens: bool, param: str) -> list[int]:
    """Long texts are encoded on a thread, where they do not hold up running streams."""
    try:
        if len(content) < _THREAD_CHARS:
            return text.tokenizer.encode(content, add_special_tokens)
        return await asyncio.to_thread(text.tokenizer.encode, content, add_special_tokens)
    except TextError as error:
        raise invalid(str(error), param) from error


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
    return num_bytes > _THREAD_CHARS or len(messages) > _THREAD_MESSAGES


async def _encode_all(
    text: ModelText, texts: Mapping[str, str], add_special_tokens: bool
) -> dict[str, list[int]]:
    """Several texts, by the fields they come from."""
    if sum(map(len, texts.values())) < _THREAD_CHARS:
        return {
            param: await _encode(text, content, add_special_tokens, param)
            for param, content in texts.items()
        }
    encode = text.tokenizer.encode_batch
    try:
        encoded = await asyncio.to_thread(encode, list(texts.values()), add_special_tokens)
    except TextError:
        # It does not say which of them is at fault.
        for param, content in texts.items():
            await _encode(text, content, add_special_tokens, param)
        raise
    return dict(zip(texts, encoded, strict=True))


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


def _refusal(reason: RejectReason, param: str) -> Exception:
    return rejected(reason, param, {})
