"""`POST /v1/responses`: a chat in the form of OpenAI's Responses API."""

from typing import Annotated

from litestar import Request, post
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler

from pegainfer_server.answer.reply import Reply, StreamReply
from pegainfer_server.answer.response_events import ResponseEvents
from pegainfer_server.answer.several import ChoicesReply
from pegainfer_server.answer.whole_response import WholeResponse
from pegainfer_server.protocol.response import Response
from pegainfer_server.protocol.responses_request import REFUSED_IN_RESPONSES, ResponsesRequest
from pegainfer_server.request_id import adopt_request_id
from pegainfer_server.routes.body import JSON_BODY, documented, strict_body
from pegainfer_server.routes.translated import translated_job
from pegainfer_server.state import ServerState
from pegainfer_server.translation.responses_chat import (
    responses_chat,
    responses_conversation,
    responses_names,
)

PATH = "/v1/responses"


def responses_route(state: ServerState) -> HTTPRouteHandler:
    """The handler, bound to a server."""

    @post(
        PATH,
        status_code=200,
        dto=strict_body(ResponsesRequest, REFUSED_IN_RESPONSES),
        return_dto=None,
        responses=documented(Response),
    )
    async def create_response(
        data: Annotated[ResponsesRequest, JSON_BODY], request: Request[None, None, State]
    ) -> Reply:
        model = state.serving()
        request_id = adopt_request_id(request.scope, data.request_id)
        conversation = responses_conversation(data)
        job = await translated_job(
            model,
            responses_chat(data, conversation),
            request_id,
            endpoint=PATH,
            names=responses_names(data, conversation),
        )
        generation = state.start(job)
        if job.stream:
            return StreamReply(generation, ResponseEvents(data, job), state.keeper)
        return ChoicesReply([generation], model.tokenizer, WholeResponse(data))

    return create_response
