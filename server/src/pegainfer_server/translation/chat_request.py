"""The chat that another API's request becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pegainfer_server.protocol.chat import ChatRequest
from pegainfer_server.protocol.sampling_fields import GenerationFields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_server.protocol.message import Message


def chat_request(
    data: GenerationFields, messages: Sequence[Message], **fields: object
) -> ChatRequest:
    """Take over the fields that all endpoints share, and add `fields`, which are the chat's."""
    shared = {name: getattr(data, name) for name in GenerationFields.__struct_fields__}
    return msgspec.convert({**shared, **fields, "messages": messages}, ChatRequest)
