"""What every scheduler checks before it queues a request: ids, fields, capabilities, length."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.contract import (
    ContextLength,
    EmptyPrompt,
    InvalidParam,
    InvalidToken,
    ParamError,
    Unsupported,
)

if TYPE_CHECKING:
    from pegainfer_core.contract import (
        EngineCapabilities,
        GenerateRequest,
        RejectReason,
        ServePlan,
    )

_WIDTH = "must fit 64 bits"


def check_request(
    request: GenerateRequest, plan: ServePlan, packed: bytes | None = None
) -> RejectReason | None:
    """Find the first reason why a request can never be served, whatever the load.

    The rule for length: prompt plus `max_tokens` must fit the context; a request without
    `max_tokens` needs room for one token, and for its `min_tokens`, and is later clamped to the
    context.

    Args:
        request: What the client asks.
        plan: What the engine serves.
        packed: The prompt's ids as `pegainfer_core.kv.pack_tokens` gives them: looking through
            these takes a hundredth of the time.
    """
    return (
        _check_prompt(request, plan.vocab_size, packed)
        or _check_field_widths(request)
        or _check_params(request, plan.vocab_size)
        or _check_capabilities(request, plan.capabilities)
        or _check_length(request, plan.max_model_len)
        or _check_min_tokens(request, plan.max_model_len)
    )


def check_widths(request: GenerateRequest) -> RejectReason | None:
    """Find the first field with an integer that does not fit 64 bits.

    Such a request has no form on a socket; it is refused alike where it would not cross one.
    """
    if _too_wide(request.prompt_token_ids):
        return InvalidParam(field="prompt_token_ids", problem=_WIDTH)
    return _check_field_widths(request)


def _check_field_widths(request: GenerateRequest) -> RejectReason | None:
    params = request.params
    values = [(name, getattr(params, name)) for name in params.__struct_fields__]
    for name, value in (*values, ("priority", request.priority)):
        if name == "bad_token_sequences":
            sequences = value if isinstance(value, list) else []
            numbers = [i for sequence in sequences if isinstance(sequence, list) for i in sequence]
        elif isinstance(value, int):
            numbers = [value]
        else:
            numbers = list(value) if isinstance(value, (list, dict)) else []
        if _too_wide(numbers):
            return InvalidParam(field=name, problem=_WIDTH)
    return None


def clamp_max_tokens(request: GenerateRequest, max_model_len: int) -> int:
    """Most tokens to generate: what was asked for, else what the context has room for."""
    room = max_model_len - len(request.prompt_token_ids)
    asked = request.params.max_tokens
    return room if asked is None else min(asked, room)


def _too_wide(numbers: list[int]) -> bool:
    try:
        return bool(numbers) and not (-(2**63) <= min(numbers) and max(numbers) < 2**64)
    except TypeError:
        return False  # They are no numbers, which is told when the parameters are checked.


def _check_prompt(
    request: GenerateRequest, vocab_size: int, packed: bytes | None
) -> RejectReason | None:
    token_ids = request.prompt_token_ids
    if not token_ids:
        return EmptyPrompt()
    if packed is not None and _highest(packed) < vocab_size:
        return None
    # Two passes over a prompt take longer than anything else here, so these serve both questions.
    for token_id in (min(token_ids), max(token_ids)):
        if not 0 <= token_id < vocab_size:
            if _too_wide(token_ids):
                return InvalidParam(field="prompt_token_ids", problem=_WIDTH)
            return InvalidToken(token_id=token_id, vocab_size=vocab_size)
    return None


def _highest(packed: bytes) -> int:
    # Whoever only validates without packed ids, such as a server, need not load NumPy.
    import numpy as np

    return int(np.frombuffer(packed, dtype="<u4").max())


def _check_params(request: GenerateRequest, vocab_size: int) -> RejectReason | None:
    try:
        request.params.validate(vocab_size)
    except ParamError as error:
        return InvalidParam(field=error.field, problem=error.problem)
    return None


def _check_length(request: GenerateRequest, max_model_len: int) -> RejectReason | None:
    prompt_tokens = len(request.prompt_token_ids)
    asked = request.params.max_tokens
    max_tokens = 1 if asked is None else asked
    if prompt_tokens + max_tokens <= max_model_len:
        return None
    return ContextLength(
        prompt_tokens=prompt_tokens, max_tokens=max_tokens, limit_tokens=max_model_len
    )


def _check_min_tokens(request: GenerateRequest, max_model_len: int) -> RejectReason | None:
    """A context that ends first would break the promise; with `max_tokens` it cannot."""
    room = max_model_len - len(request.prompt_token_ids)
    min_tokens = request.params.min_tokens
    if request.params.max_tokens is not None or min_tokens <= room:
        return None
    return InvalidParam(
        field="min_tokens",
        problem=f"{min_tokens} is more than the {room} tokens that the context has room for",
    )


def _check_capabilities(
    request: GenerateRequest, capabilities: EngineCapabilities
) -> RejectReason | None:
    params = request.params
    asked = (
        ("temperature", not params.greedy and params.temperature != 1.0, capabilities.sampling),
        ("seed", params.seed is not None, capabilities.seed),
        ("repetition_penalty", params.repetition_penalty != 1.0, capabilities.penalties),
        ("presence_penalty", params.presence_penalty != 0.0, capabilities.penalties),
        ("frequency_penalty", params.frequency_penalty != 0.0, capabilities.penalties),
        ("logit_bias", bool(params.logit_bias), capabilities.logit_bias),
        ("allowed_token_ids", params.allowed_token_ids is not None, capabilities.token_masks),
        ("bad_words", bool(params.bad_token_sequences), capabilities.token_masks),
        ("min_tokens", params.min_tokens > 0, capabilities.min_tokens),
        ("logprobs", params.logprobs is not None, capabilities.logprobs),
        ("prompt_logprobs", params.prompt_logprobs is not None, capabilities.prompt_logprobs),
        ("priority", request.priority != 0, capabilities.priority),
        ("lora", request.lora is not None, capabilities.lora),
        ("kv_transfer_params", request.kv_transfer_params is not None, capabilities.kv_transfer),
        ("structured", params.structured is not None, capabilities.structured),
    )
    for field, given, honoured in asked:
        if given and not honoured:
            return Unsupported(field=field)
    return None
