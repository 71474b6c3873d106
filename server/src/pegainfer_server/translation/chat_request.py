"""The chat that another API's request becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pegainfer_server.protocol.chat import ChatRequest
from pegainfer_server.protocol.decode import wrong_value
from pegainfer_server.protocol.sampling_fields import GenerationFields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_server.protocol.message import Message


def chat_request(
    data: GenerationFields, messages: Sequence[Message], **fields: object
) -> ChatRequest:
    """Take over the fields that all endpoints share, and add `fields`, which are the chat's.

    Raises:
        ApiError: 400, one of `fields` is malformed; it has the chat's name.
    """
    shared = {name: getattr(data, name) for name in GenerationFields.__struct_fields__}
    try:
        return msgspec.convert({**shared, **fields, "messages": messages}, ChatRequest)
    except msgspec.ValidationError as error:
        raise wrong_value(str(error)) from error


def response_format(given: dict[str, object] | None) -> dict[str, object] | None:
    """A form as chats have it: what a schema comes with lies one level deeper there."""
    if given is None or given.get("type") != "json_schema":
        return given
    inner = {name: value for name, value in given.items() if name != "type"}
    return {"type": "json_schema", "json_schema": inner}
