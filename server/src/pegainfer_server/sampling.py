"""Sampling parameters of a request: its own values, else the server's defaults, else OpenAI's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pegainfer_core.contract import SamplingParams
from pegainfer_server.api_error import invalid, unsupported
from pegainfer_server.protocol.sampling_fields import MAX_CHOICES, MAX_STOP_STRINGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pegainfer_core.contract import StructuredOutput
    from pegainfer_core.text import Tokenizer
    from pegainfer_server.protocol.sampling_fields import SamplingFields

_DEFAULTABLE = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)
_TOKEN_ID = re.compile(r"0|[1-9][0-9]{0,17}")
"""One spelling for an id, so that none can be given twice."""
MAX_BAD_WORDS = 1024
MAX_BAD_WORD_CHARS = 1000
MAX_BAD_CHARS = 32_768
"""Of all bad words together."""
MAX_STOP_TOKENS = 4096
MAX_STOP_CHARS = 4096
"""Of one stop string."""
MAX_BIASES = 4096
"""The engine's limit, known here before so many keys are read."""

_SAMPLING_RENAMES = {"bad_token_sequences": "bad_words"}


def effective_defaults(
    from_checkpoint: Mapping[str, float | int], from_flags: Mapping[str, float | int]
) -> dict[str, float | int]:
    """Values for requests that do not give their own: flags before generation_config.json."""
    merged = {**from_checkpoint, **from_flags}
    return {name: merged[name] for name in _DEFAULTABLE if name in merged}


def renames(**more: str) -> dict[str, str]:
    """Engine field names to the names clients use."""
    return {**_SAMPLING_RENAMES, **more}


def check_shared(request: SamplingFields) -> None:
    """Refuse what no model here can do, and settings that make no sense together.

    Raises:
        ApiError: 400 naming the field.
    """
    check_num_choices(request)
    if request.stream_options is not None and not request.stream:
        raise invalid("stream_options needs stream: true", "stream_options")
    if request.prompt_logprobs is not None and request.stream:
        raise invalid("prompt_logprobs cannot be streamed", "prompt_logprobs")
    if len(request.stop_strings) > MAX_STOP_STRINGS:
        raise invalid(f"stop takes at most {MAX_STOP_STRINGS} strings", "stop")
    if any(len(string) > MAX_STOP_CHARS for string in request.stop_strings):
        raise invalid(f"stop takes strings of at most {MAX_STOP_CHARS} characters", "stop")
    if len(request.stop_token_ids or ()) > MAX_STOP_TOKENS:
        raise invalid(f"stop_token_ids takes at most {MAX_STOP_TOKENS} ids", "stop_token_ids")
    if not all(request.stop_strings):
        raise invalid("stop must not hold an empty string", "stop")


def check_num_choices(request: SamplingFields, num_prompts: int = 1) -> None:
    """Refuse more answers than one request may have, and a choice among more than are shown.

    Raises:
        ApiError: 400 naming the field.
    """
    samples = request.num_samples
    if request.best_of not in (None, samples):
        raise unsupported(f"best_of must equal n, which is {samples}; leave it out", "best_of")
    if samples * num_prompts > MAX_CHOICES:
        if samples == 1:
            raise invalid(f"{num_prompts} prompts; at most {MAX_CHOICES} a request", "prompt")
        prompts = f" of {num_prompts} prompts" if num_prompts > 1 else ""
        raise invalid(f"n is {samples}{prompts}; at most {MAX_CHOICES} answers a request", "n")


def sampling_params(
    request: SamplingFields,
    defaults: Mapping[str, float | int],
    tokenizer: Tokenizer,
    *,
    max_tokens: int | None,
    logprobs: int | None,
    prompt_logprobs: int | None,
    structured: StructuredOutput | None = None,
) -> SamplingParams:
    """Merge a request with the defaults. Ranges are the engine's to check.

    Args:
        request: The client's.
        defaults: From `effective_defaults`.
        tokenizer: Turns `bad_words` into ids.
        max_tokens: Most tokens to generate, None to fill the context.
        logprobs: Alternatives for generated tokens, None for no log-probabilities.
        prompt_logprobs: The same for prompt tokens.
        structured: The form of the answer.

    Raises:
        ApiError: 400 naming the field.
    """
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=request.min_tokens or 0,
        temperature=_first(request.temperature, defaults.get("temperature"), 1.0),
        top_k=int(_first(request.top_k, defaults.get("top_k"), 0)),
        top_p=_first(request.top_p, defaults.get("top_p"), 1.0),
        min_p=_first(request.min_p, defaults.get("min_p"), 0.0),
        seed=request.seed,
        repetition_penalty=_first(
            request.repetition_penalty, defaults.get("repetition_penalty"), 1.0
        ),
        presence_penalty=_first(request.presence_penalty, defaults.get("presence_penalty"), 0.0),
        frequency_penalty=_first(request.frequency_penalty, defaults.get("frequency_penalty"), 0.0),
        logit_bias=_logit_bias(request.logit_bias or {}),
        allowed_token_ids=request.allowed_token_ids,
        bad_token_sequences=_bad_sequences(request.bad_words or [], tokenizer),
        stop_token_ids=request.stop_token_ids or [],
        ignore_eos=bool(request.ignore_eos),
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        structured=structured,
    )


def _first(own: float | None, default: float | None, fallback: float) -> float:
    """The first value that is set."""
    return own if own is not None else default if default is not None else fallback


def _logit_bias(given: Mapping[str, float]) -> dict[int, float]:
    if len(given) > MAX_BIASES:
        raise invalid(f"logit_bias has {len(given)} entries; at most {MAX_BIASES}", "logit_bias")
    for key in given:
        if not _TOKEN_ID.fullmatch(key):
            raise invalid(
                f'logit_bias keys are token ids in decimal, like "42", not {key[:40]!r}',
                "logit_bias",
            )
    return {int(key): bias for key, bias in given.items()}


def _bad_sequences(words: list[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Each word at the start of a text and behind a space, where most vocabularies differ."""
    if len(words) > MAX_BAD_WORDS:
        raise invalid(f"bad_words has {len(words)} entries; at most {MAX_BAD_WORDS}", "bad_words")
    num_chars = sum(map(len, words))
    if num_chars > MAX_BAD_CHARS and all(len(word) <= MAX_BAD_WORD_CHARS for word in words):
        raise invalid(f"bad_words has {num_chars} characters; at most {MAX_BAD_CHARS}", "bad_words")
    sequences: dict[tuple[int, ...], None] = {}
    for word in words:
        if not word.strip():
            raise invalid("bad_words must not hold an empty string", "bad_words")
        if len(word) > MAX_BAD_WORD_CHARS:
            raise invalid(
                f"bad_words holds a word of {len(word)} characters; at most {MAX_BAD_WORD_CHARS}",
                "bad_words",
            )
        for text in (word, f" {word.lstrip()}"):
            token_ids = tokenizer.encode(text, add_special_tokens=False)
            if token_ids:
                sequences[tuple(token_ids)] = None
    return [list(token_ids) for token_ids in sequences]
