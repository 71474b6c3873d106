"""One prompt with everything decided about it, and how what the caller gave becomes such jobs."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pegainfer_core.contract import GenerateRequest, SamplingParams
from pegainfer_core.engine import check_request
from pegainfer_core.llm.prompt_error import PromptError
from pegainfer_core.text import TextError

if TYPE_CHECKING:
    from pegainfer_core.contract import ServePlan
    from pegainfer_core.text import Tokenizer

Prompts = str | Sequence[int] | Sequence[str | Sequence[int]]
"""One text, one list of ids, or a list of texts and lists of ids."""

ParamsArgument = SamplingParams | Sequence[SamplingParams] | None
"""One for all prompts, one each, or the model's defaults."""


class Prompt(NamedTuple):
    """Ids for the engine; `text` is what they were made from, None for ids."""

    token_ids: list[int]
    text: str | None


class Job(NamedTuple):
    """One request to run; `sample_index` is its place among those of its prompt."""

    prompt: Prompt
    params: SamplingParams
    sample_index: int = 0


def read_prompts(prompts: Prompts, tokenizer: Tokenizer) -> list[Prompt]:
    """Encode texts, copy ids.

    Raises:
        TypeError: Something is neither a text nor a list of ids.
        PromptError: A text has no UTF-8 form.
    """
    if isinstance(prompts, str):
        return encode([prompts], tokenizer, add_special_tokens=True)
    if not isinstance(prompts, Iterable):
        raise TypeError(f"prompts must be texts or lists of token ids, not {prompts!r:.60}")
    items = list(prompts)
    if items and all(_as_id(item) is not None for item in items):
        return [_read_ids(0, items)]
    texts = {i: item for i, item in enumerate(items) if isinstance(item, str)}
    encoded = encode(list(texts.values()), tokenizer, add_special_tokens=True, indices=list(texts))
    by_index = dict(zip(texts, encoded, strict=True))
    return [by_index.get(i) or _read_ids(i, item) for i, item in enumerate(items)]


def encode(
    texts: list[str],
    tokenizer: Tokenizer,
    *,
    add_special_tokens: bool,
    indices: Sequence[int] | None = None,
) -> list[Prompt]:
    """Encode texts on all cores; `indices` are their places in what the caller gave.

    Raises:
        PromptError: A text has no UTF-8 form.
    """
    try:
        encoded = tokenizer.encode_batch(texts, add_special_tokens)
    except TextError:
        # The batch does not say which text it was.
        for index, text in zip(indices or range(len(texts)), texts, strict=True):
            try:
                tokenizer.encode(text, add_special_tokens)
            except TextError as error:
                raise PromptError(index, str(error)) from error
        raise
    return [Prompt(token_ids, text) for token_ids, text in zip(encoded, texts, strict=True)]


def make_jobs(
    prompts: list[Prompt],
    params: ParamsArgument,
    defaults: SamplingParams,
    plan: ServePlan,
    num_samples: int = 1,
) -> list[Job]:
    """Give each prompt its parameters and check both, so that a bad one costs no computing.

    Each prompt gets `num_samples` jobs, which stand together.

    Given parameters are taken as they are. Without any, `defaults` apply, and their limit on
    generated tokens, if any, is shortened to the room the context has.

    Raises:
        TypeError: The parameters are something else, such as a dict.
        ValueError: There are not as many parameters as prompts, or no samples are asked for.
        PromptError: A prompt can never be served with its parameters.
    """
    if isinstance(num_samples, bool) or not isinstance(num_samples, int) or num_samples < 1:
        raise ValueError(f"n must be an integer of at least 1, not {num_samples!r:.60}")
    if params is None:
        jobs = [Job(prompt, _fitting(defaults, prompt, plan)) for prompt in prompts]
    elif isinstance(params, SamplingParams):
        jobs = [Job(prompt, params) for prompt in prompts]
    else:
        if not isinstance(params, list | tuple):
            raise _not_params(params)
        if len(params) != len(prompts):
            raise ValueError(
                f"{len(prompts)} prompts came with {len(params)} sampling parameters; "
                "give one for all or one for each"
            )
        jobs = [Job(*pair) for pair in zip(prompts, params, strict=True)]
    for index, job in enumerate(jobs):
        if not isinstance(job.params, SamplingParams):
            raise _not_params(job.params)
        _check(index, job, plan)
    return [job._replace(sample_index=number) for job in jobs for number in range(num_samples)]


def _not_params(given: object) -> TypeError:
    return TypeError(
        f"sampling parameters must be a SamplingParams or a list of them, not {given!r:.60}"
    )


def _as_id(item: object) -> int | None:
    """An integer of any kind, NumPy's included; True is none."""
    if isinstance(item, bool):
        return None
    try:
        return operator.index(item)  # type: ignore[arg-type]
    except TypeError:
        return None


def _read_ids(index: int, item: object) -> Prompt:
    if isinstance(item, Iterable) and not isinstance(item, str | bytes):
        ids = [_as_id(value) for value in item]
        if None not in ids:
            return Prompt([value for value in ids if value is not None], None)
    raise TypeError(f"prompt {index} must be a text or a list of token ids, not {item!r:.60}")


def _fitting(defaults: SamplingParams, prompt: Prompt, plan: ServePlan) -> SamplingParams:
    room = plan.max_model_len - len(prompt.token_ids)
    if defaults.max_tokens is None or defaults.max_tokens <= room:
        return defaults
    return msgspec.structs.replace(defaults, max_tokens=max(room, 1))


def _check(index: int, job: Job, plan: ServePlan) -> None:
    request = GenerateRequest(
        request_id=0, prompt_token_ids=job.prompt.token_ids, params=job.params
    )
    reason = check_request(request, plan)
    if reason is not None:
        raise PromptError(index, str(reason))
