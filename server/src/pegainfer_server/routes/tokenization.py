"""`POST /tokenize` and `POST /detokenize`: what the model reads, and what ids say."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

from litestar import post
from litestar.handlers import HTTPRouteHandler

from pegainfer_core.text import TokenizerError
from pegainfer_server.answer.reply import BytesReply
from pegainfer_server.answer.sse import encode_json
from pegainfer_server.api_error import invalid
from pegainfer_server.chat_prompt import chat_prompt
from pegainfer_server.prompt import completion_inputs, completion_prompts
from pegainfer_server.protocol.refused import REFUSED
from pegainfer_server.protocol.tokenization import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
)
from pegainfer_server.routes.body import JSON_BODY, documented, strict_body
from pegainfer_server.served_model import ServedModel
from pegainfer_server.state import ServerState
from pegainfer_server.tool_request import checked_tools


def tokenization_routes(state: ServerState) -> Sequence[HTTPRouteHandler]:
    """The handlers, bound to a server."""

    @post(
        "/tokenize",
        status_code=200,
        dto=strict_body(TokenizeRequest, REFUSED),
        return_dto=None,
        responses=documented(TokenizeResponse),
    )
    async def tokenize(data: Annotated[TokenizeRequest, JSON_BODY]) -> BytesReply:
        model = state.serving()
        model.name_for(data.model)
        token_ids = await _token_ids(model, data)
        body = await asyncio.to_thread(_tokenized, model, token_ids, data.return_token_strs)
        return BytesReply(body)

    @post(
        "/detokenize",
        status_code=200,
        dto=strict_body(DetokenizeRequest, REFUSED),
        return_dto=None,
        responses=documented(DetokenizeResponse),
    )
    async def detokenize(data: Annotated[DetokenizeRequest, JSON_BODY]) -> BytesReply:
        model = state.serving()
        model.name_for(data.model)
        try:
            decode = model.tokenizer.decode
            text = await asyncio.to_thread(decode, data.tokens, skip_special_tokens=False)
        except TokenizerError as error:
            raise invalid(str(error), "tokens") from error
        return BytesReply(encode_json(DetokenizeResponse(text)))

    return tokenize, detokenize


def _tokenized(model: ServedModel, token_ids: list[int], strings: bool | None) -> bytes:
    piece = model.tokenizer.id_to_piece
    response = TokenizeResponse(
        count=len(token_ids),
        max_model_len=model.info.max_model_len,
        tokens=token_ids,
        token_strs=[piece(token_id) or "" for token_id in token_ids] if strings else None,
    )
    return encode_json(response)


async def _token_ids(model: ServedModel, data: TokenizeRequest) -> list[int]:
    if (data.prompt is None) == (data.messages is None):
        raise invalid("send either prompt or messages", "prompt")
    if data.messages is not None:
        prompt = await chat_prompt(
            model.text,
            data.messages,
            tools=checked_tools(data.tools),
            template_kwargs=data.chat_template_kwargs,
            add_generation_prompt=data.add_generation_prompt,
            continue_final_message=data.continue_final_message,
            add_special_tokens=data.add_special_tokens,
        )
    else:
        given = completion_inputs(data.prompt or "")
        adds = data.add_special_tokens is not False
        prompt = (await completion_prompts(model, given, adds))[0]
    return prompt.token_ids
