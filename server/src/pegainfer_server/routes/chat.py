"""`POST /v1/chat/completions`."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from litestar import Request, post
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler

from pegainfer_server.answer.chat_chunks import ChatChunks
from pegainfer_server.answer.reply import Reply
from pegainfer_server.answer.several import ChoicesReply, stream_reply
from pegainfer_server.answer.whole import encode_chats
from pegainfer_server.api_error import invalid
from pegainfer_server.chat_prompt import chat_prompt
from pegainfer_server.job import Job
from pegainfer_server.prompt import Prompt, fit_context
from pegainfer_server.protocol.chat import ChatRequest, ChatResponse
from pegainfer_server.protocol.refused import REFUSED_IN_CHAT
from pegainfer_server.request_id import adopt_request_id
from pegainfer_server.routes.body import JSON_BODY, documented, strict_body
from pegainfer_server.sampling import check_shared, renames, sampling_params
from pegainfer_server.served_model import ServedModel
from pegainfer_server.state import ServerState
from pegainfer_server.structured_request import behind_reasoning, structured_wish
from pegainfer_server.tool_request import offered_tools, parsing_of
from pegainfer_server.tool_wish import tool_wish

PATH = "/v1/chat/completions"


def chat_route(state: ServerState) -> HTTPRouteHandler:
    """The handler, bound to a server."""

    @post(
        PATH,
        status_code=200,
        dto=strict_body(ChatRequest, REFUSED_IN_CHAT),
        return_dto=None,
        responses=documented(ChatResponse),
    )
    async def create_chat_completion(
        data: Annotated[ChatRequest, JSON_BODY], request: Request[None, None, State]
    ) -> Reply:
        model = state.serving()
        request_id = adopt_request_id(request.scope, data.request_id)
        job = await chat_job(model, data, request_id)
        generations = state.start_all(job.samples(data.num_samples))
        if not job.stream:
            return ChoicesReply(generations, model.tokenizer, encode_chats)
        chunks = [ChatChunks(generation.job, model.tokenizer) for generation in generations]
        return stream_reply(generations, chunks, state.keeper)

    return create_chat_completion


async def chat_job(model: ServedModel, data: ChatRequest, request_id: str) -> Job:
    """Everything about a chat, decided.

    Raises:
        ApiError: The request asks for something impossible.
    """
    name = model.name_for(data.model)
    check_shared(data)
    asked, limit_name = _max_tokens(data)
    tools = offered_tools(data, model.parsers)
    wish = tool_wish(data, tools, model.parsers, model.tokenizer, structured_wish(data))
    limit_tokens = model.info.max_model_len if data.truncate_prompt_tokens is None else None
    whole = await rendered_chat(model, data, tools, limit_tokens)
    prompt, max_tokens = fit_context(
        whole,
        model.info.max_model_len,
        asked=asked,
        default=model.text.generation.max_new_tokens,
        truncate=data.truncate_prompt_tokens,
        param="messages",
    )
    return Job.of(
        data,
        endpoint=PATH,
        request_id=request_id,
        model=name,
        prompt_token_ids=prompt.token_ids,
        prompt_param="messages",
        renames=renames(
            logprobs="top_logprobs",
            max_tokens=limit_name,
            structured="response_format" if wish is None else wish.field,
        ),
        params=sampling_params(
            data,
            model.sampling_defaults,
            model.tokenizer,
            max_tokens=max_tokens,
            logprobs=_num_logprobs(data),
            prompt_logprobs=data.prompt_logprobs,
            structured=None if wish is None else behind_reasoning(wish.form, model, whole),
        ),
        parsing=parsing_of(data, model.parsers, tools, whole),
    )


async def rendered_chat(
    model: ServedModel,
    data: ChatRequest,
    tools: Sequence[Mapping[str, object]],
    limit_tokens: int | None = None,
) -> Prompt:
    """The prompt of a chat, however long unless a limit is given; see `chat_prompt`.

    Raises:
        ApiError: 400, the template refuses the messages.
    """
    return await chat_prompt(
        model.text,
        data.messages,
        tools=tools,
        template_kwargs=data.chat_template_kwargs,
        reasoning_effort=data.reasoning_effort,
        add_generation_prompt=data.add_generation_prompt,
        continue_final_message=data.continue_final_message,
        add_special_tokens=data.add_special_tokens,
        limit_tokens=limit_tokens,
    )


def _max_tokens(data: ChatRequest) -> tuple[int | None, str]:
    """The limit and the name the client gave it; two names for two limits make no sense."""
    new, old = data.max_completion_tokens, data.max_tokens
    if new is not None and old is not None and new != old:
        raise invalid(
            f"max_tokens {old} and max_completion_tokens {new} contradict each other; send one",
            "max_completion_tokens",
        )
    if new is not None:
        return new, "max_completion_tokens"
    return old, "max_tokens"


def _num_logprobs(data: ChatRequest) -> int | None:
    if data.logprobs:
        return data.top_logprobs or 0
    if data.top_logprobs:
        raise invalid("top_logprobs needs logprobs: true", "top_logprobs")
    return None
