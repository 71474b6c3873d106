"""`POST /v1/completions`."""

from typing import Annotated

from litestar import Request, post
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler

from pegainfer_core.text import TextOutput, Tokenizer
from pegainfer_server.answer.completion_chunks import CompletionChunks
from pegainfer_server.answer.reply import Reply, StreamReply, WholeReply
from pegainfer_server.answer.whole import encode_completion
from pegainfer_server.api_error import invalid
from pegainfer_server.job import Echo, Job
from pegainfer_server.prompt import Prompt, completion_prompt, fit_context
from pegainfer_server.protocol.completion import DEFAULT_MAX_TOKENS, CompletionRequest
from pegainfer_server.protocol.refused import REFUSED
from pegainfer_server.request_id import adopt_request_id
from pegainfer_server.routes.body import JSON_BODY, strict_body
from pegainfer_server.sampling import check_shared, renames, sampling_params
from pegainfer_server.served_model import ServedModel
from pegainfer_server.state import ServerState

PATH = "/v1/completions"


def completion_route(state: ServerState) -> HTTPRouteHandler:
    """The handler, bound to a server."""

    @post(PATH, status_code=200, dto=strict_body(CompletionRequest, REFUSED), return_dto=None)
    async def create_completion(
        data: Annotated[CompletionRequest, JSON_BODY], request: Request[None, None, State]
    ) -> Reply:
        model = state.serving()
        request_id = adopt_request_id(request.scope, data.request_id)
        generation = state.start(await completion_job(model, data, request_id))
        if generation.job.stream:
            chunks = CompletionChunks(generation.job, model.tokenizer)
            return StreamReply(generation, chunks, state.keeper)
        return WholeReply(generation, model.tokenizer, encode_completion)

    return create_completion


async def completion_job(model: ServedModel, data: CompletionRequest, request_id: str) -> Job:
    """Everything about a completion, decided.

    Raises:
        ApiError: The request asks for something impossible.
    """
    name = model.name_for(data.model)
    check_shared(data)
    if data.max_tokens == 0 and not data.echo and data.prompt_logprobs is None:
        raise invalid("max_tokens 0 needs echo or prompt_logprobs", "max_tokens")
    add_special_tokens = data.add_special_tokens is not False
    prompt, max_tokens = fit_context(
        await completion_prompt(model, data.prompt, add_special_tokens),
        model.info.max_model_len,
        asked=data.max_tokens,
        default=DEFAULT_MAX_TOKENS,
        truncate=data.truncate_prompt_tokens,
        param="prompt",
    )
    skip_special_tokens = data.skip_special_tokens is not False
    return Job.of(
        data,
        endpoint=PATH,
        request_id=request_id,
        model=name,
        prompt_token_ids=prompt.token_ids,
        prompt_param="prompt",
        renames=renames(),
        params=sampling_params(
            data,
            model.sampling_defaults,
            model.tokenizer,
            max_tokens=max_tokens,
            logprobs=data.logprobs,
            prompt_logprobs=_prompt_logprobs(data),
        ),
        echo=_echo(prompt, model.tokenizer, skip_special_tokens) if data.echo else None,
    )


def _prompt_logprobs(data: CompletionRequest) -> int | None:
    """An echoed prompt has log-probabilities too."""
    echoed = data.logprobs if data.echo else None
    asked = [count for count in (echoed, data.prompt_logprobs) if count is not None]
    return max(asked, default=None)


def _echo(prompt: Prompt, tokenizer: Tokenizer, skip_special_tokens: bool) -> Echo:
    """The prompt as it was sent, or as its ids read."""
    output = TextOutput(tokenizer, skip_special_tokens=skip_special_tokens, text_offsets=True)
    delta = output.push(prompt.token_ids)
    text = delta.text + output.finish().text
    return Echo(
        text=text if prompt.text is None else prompt.text, text_offsets=delta.text_offsets or ()
    )
