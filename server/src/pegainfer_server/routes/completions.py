"""`POST /v1/completions`."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

from litestar import Request, post
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler
from msgspec.structs import replace

from pegainfer_core.text import TextOutput, Tokenizer
from pegainfer_server.answer.completion_chunks import CompletionChunks
from pegainfer_server.answer.reply import Reply
from pegainfer_server.answer.several import ChoicesReply, stream_reply
from pegainfer_server.answer.whole import encode_completions
from pegainfer_server.api_error import invalid
from pegainfer_server.job import Echo, Job
from pegainfer_server.prompt import (
    CompletionInput,
    Prompt,
    completion_inputs,
    completion_prompts,
    fit_context,
)
from pegainfer_server.protocol.completion import (
    DEFAULT_MAX_TOKENS,
    CompletionRequest,
    CompletionResponse,
)
from pegainfer_server.protocol.refused import REFUSED_IN_COMPLETIONS
from pegainfer_server.request_id import adopt_request_id
from pegainfer_server.routes.body import JSON_BODY, documented, strict_body
from pegainfer_server.sampling import check_num_choices, check_shared, renames, sampling_params
from pegainfer_server.served_model import ServedModel
from pegainfer_server.state import ServerState
from pegainfer_server.structured_request import structured_wish

PATH = "/v1/completions"
_THREAD_TOKENS = 2048


def completion_route(state: ServerState) -> HTTPRouteHandler:
    """The handler, bound to a server."""

    @post(
        PATH,
        status_code=200,
        dto=strict_body(CompletionRequest, REFUSED_IN_COMPLETIONS),
        return_dto=None,
        responses=documented(CompletionResponse),
    )
    async def create_completion(
        data: Annotated[CompletionRequest, JSON_BODY], request: Request[None, None, State]
    ) -> Reply:
        model = state.serving()
        request_id = adopt_request_id(request.scope, data.request_id)
        jobs = await completion_jobs(model, data, request_id)
        samples = [sample for job in jobs for sample in job.samples(data.num_samples)]
        generations = state.start_all(samples)
        if not data.stream:
            return ChoicesReply(generations, model.tokenizer, encode_completions)
        chunks = [CompletionChunks(generation.job, model.tokenizer) for generation in generations]
        return stream_reply(generations, chunks, state.keeper)

    return create_completion


async def completion_jobs(
    model: ServedModel, data: CompletionRequest, request_id: str
) -> list[Job]:
    """Everything about a completion, decided: a job for each prompt.

    Raises:
        ApiError: The request asks for something impossible.
    """
    name = model.name_for(data.model)
    check_shared(data)
    if data.max_tokens == 0 and not data.echo and data.prompt_logprobs is None:
        raise invalid("max_tokens 0 needs echo or prompt_logprobs", "max_tokens")
    wish = structured_wish(data)
    given = completion_inputs(data.prompt)
    check_num_choices(data, len(given))
    prompts = await _fitted_prompts(model, data, given)
    first, max_tokens = prompts[0]
    job = Job.of(
        data,
        endpoint=PATH,
        request_id=request_id,
        model=name,
        prompt_token_ids=first.token_ids,
        prompt_param=first.param,
        renames=renames() if wish is None else renames(structured=wish.field),
        params=sampling_params(
            data,
            model.sampling_defaults,
            model.tokenizer,
            max_tokens=max_tokens,
            logprobs=data.logprobs,
            prompt_logprobs=_prompt_logprobs(data),
            structured=None if wish is None else wish.form,
        ),
    )
    skips = job.skip_special_tokens
    return [
        replace(
            job,
            index=index,
            prompt_token_ids=prompt.token_ids,
            prompt_param=prompt.param,
            params=replace(job.params, max_tokens=max_tokens),
            echo=await _echo(prompt, model.tokenizer, skips) if data.echo else None,
        )
        for index, (prompt, max_tokens) in enumerate(prompts)
    ]


async def _fitted_prompts(
    model: ServedModel, data: CompletionRequest, given: Sequence[CompletionInput]
) -> list[tuple[Prompt, int | None]]:
    """The prompts as ids, each with its limit on generated tokens."""
    add_special_tokens = data.add_special_tokens is not False
    encoded = await completion_prompts(
        model, given, add_special_tokens, must_fit=data.truncate_prompt_tokens is None
    )
    return [
        fit_context(
            prompt,
            model.info.max_model_len,
            asked=data.max_tokens,
            default=DEFAULT_MAX_TOKENS,
            truncate=data.truncate_prompt_tokens,
            param=prompt.param,
        )
        for prompt in encoded
    ]


def _prompt_logprobs(data: CompletionRequest) -> int | None:
    """An echoed prompt has log-probabilities too."""
    echoed = data.logprobs if data.echo else None
    asked = [count for count in (echoed, data.prompt_logprobs) if count is not None]
    return max(asked, default=None)


async def _echo(prompt: Prompt, tokenizer: Tokenizer, skip_special_tokens: bool) -> Echo:
    """The prompt as it was sent, or as its ids read; long ones are read on a thread."""
    if len(prompt.token_ids) < _THREAD_TOKENS:
        return _read_echo(prompt, tokenizer, skip_special_tokens)
    return await asyncio.to_thread(_read_echo, prompt, tokenizer, skip_special_tokens)


def _read_echo(prompt: Prompt, tokenizer: Tokenizer, skip_special_tokens: bool) -> Echo:
    output = TextOutput(tokenizer, skip_special_tokens=skip_special_tokens, text_offsets=True)
    delta = output.push(prompt.token_ids)
    text = delta.text + output.finish().text
    return Echo(
        text=text if prompt.text is None else prompt.text, text_offsets=delta.text_offsets or ()
    )
