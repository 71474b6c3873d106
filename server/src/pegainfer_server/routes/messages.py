"""`POST /v1/messages` and `/v1/messages/count_tokens`: a chat in the form of Anthropic's API."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from litestar import Request, post
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler

from pegainfer_server.answer.message_blocks import MessageFrame, WholeMessage
from pegainfer_server.answer.message_events import MessageEvents
from pegainfer_server.answer.reply import BytesReply, Reply, StreamReply
from pegainfer_server.answer.several import ChoicesReply
from pegainfer_server.answer.sse import encode_json
from pegainfer_server.error_shapes import MESSAGES_PATH
from pegainfer_server.job import Job
from pegainfer_server.protocol.messages_answer import AnsweredMessage, MessageError
from pegainfer_server.protocol.messages_request import (
    REFUSED_IN_COUNTS,
    REFUSED_IN_MESSAGES,
    CountTokensRequest,
    MessagesRequest,
    TokenCount,
)
from pegainfer_server.request_id import adopt_request_id
from pegainfer_server.routes.body import JSON_BODY, documented, strict_body
from pegainfer_server.routes.chat import rendered_chat
from pegainfer_server.routes.translated import translated_job
from pegainfer_server.served_model import ServedModel
from pegainfer_server.state import ServerState
from pegainfer_server.tool_request import offered_tools
from pegainfer_server.translation.messages_chat import (
    messages_chat,
    messages_conversation,
    messages_names,
)


def message_routes(state: ServerState) -> Sequence[HTTPRouteHandler]:
    """The handlers, bound to a server."""

    @post(
        MESSAGES_PATH,
        status_code=200,
        dto=strict_body(MessagesRequest, REFUSED_IN_MESSAGES),
        return_dto=None,
        responses=documented(AnsweredMessage, MessageError),
    )
    async def create_message(
        data: Annotated[MessagesRequest, JSON_BODY], request: Request[None, None, State]
    ) -> Reply:
        model = state.serving()
        request_id = adopt_request_id(request.scope, data.request_id)
        job = await _job(model, data, request_id)
        frame = MessageFrame(data.max_tokens)
        generation = state.start(job)
        if job.stream:
            return StreamReply(generation, MessageEvents(frame), state.keeper)
        return ChoicesReply([generation], model.tokenizer, WholeMessage(frame))

    @post(
        f"{MESSAGES_PATH}/count_tokens",
        status_code=200,
        dto=strict_body(CountTokensRequest, REFUSED_IN_COUNTS),
        return_dto=None,
        responses=documented(TokenCount, MessageError),
    )
    async def count_tokens(data: Annotated[CountTokensRequest, JSON_BODY]) -> BytesReply:
        model = state.serving()
        model.name_for(data.model)
        conversation = messages_conversation(data)
        chat = messages_chat(data, conversation)
        with messages_names(conversation).told():
            prompt = await rendered_chat(model, chat, offered_tools(chat, model.parsers))
        return BytesReply(encode_json(TokenCount(len(prompt.token_ids))))

    return create_message, count_tokens


async def _job(model: ServedModel, data: MessagesRequest, request_id: str) -> Job:
    """The job of a message.

    Clients of this API always name a limit, often more than the context has room for; it is cut,
    and the answer tells when that ended it.
    """
    conversation = messages_conversation(data)
    job = await translated_job(
        model,
        messages_chat(data, conversation),
        request_id,
        endpoint=MESSAGES_PATH,
        names=messages_names(conversation),
    )
    room = model.info.max_model_len - len(job.prompt_token_ids)
    params = msgspec.structs.replace(job.params, max_tokens=min(data.max_tokens, room))
    return msgspec.structs.replace(job, params=params)
