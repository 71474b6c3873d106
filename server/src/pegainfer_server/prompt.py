"""From the texts or ids that a client sends to a prompt, and the room it leaves for the answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from pegainfer_core.contract import ContextLength, EmptyPrompt, InvalidToken
from pegainfer_core.text import TextError
from pegainfer_server.api_error import invalid, rejected
from pegainfer_server.far_too_long import refuse_far_too_long
from pegainfer_server.protocol.sampling_fields import MAX_CHOICES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pegainfer_core.contract import RejectReason
    from pegainfer_core.text import ModelText
    from pegainfer_server.served_model import ServedModel

THREAD_CHARS = 20_000
"""What is made of longer texts is made on a thread: others' streams go on meanwhile."""


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


async def encode(text: ModelText, content: str, add_special_tokens: bool, param: str) -> list[int]:
    """The ids of a text; `param` is the field it came from.

    Raises:
        ApiError: 400, it has no UTF-8 form.
    """
    try:
        if len(content) < THREAD_CHARS:
            return text.tokenizer.encode(content, add_special_tokens)
        return await asyncio.to_thread(text.tokenizer.encode, content, add_special_tokens)
    except TextError as error:
        raise invalid(str(error), param) from error


def _are_ids(items: list[str | int | list[int]]) -> TypeGuard[list[int]]:
    """In one pass without a step of Python for each: prompts are long."""
    return set(map(type, items)) <= {int}


async def _encode_all(
    text: ModelText, texts: Mapping[str, str], add_special_tokens: bool
) -> dict[str, list[int]]:
    """Several texts, by the fields they come from."""
    if sum(map(len, texts.values())) < THREAD_CHARS:
        return {
            param: await encode(text, content, add_special_tokens, param)
            for param, content in texts.items()
        }
    encode_batch = text.tokenizer.encode_batch
    try:
        encoded = await asyncio.to_thread(encode_batch, list(texts.values()), add_special_tokens)
    except TextError:
        # It does not say which of them is at fault.
        for param, content in texts.items():
            await encode(text, content, add_special_tokens, param)
        raise
    return dict(zip(texts, encoded, strict=True))


def _refusal(reason: RejectReason, param: str) -> Exception:
    return rejected(reason, param, {})
