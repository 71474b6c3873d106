"""Other APIs' requests on their way through the chat: one generation path for all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pegainfer_server.routes.chat import chat_job

if TYPE_CHECKING:
    from pegainfer_server.job import Job
    from pegainfer_server.protocol.chat import ChatRequest
    from pegainfer_server.served_model import ServedModel
    from pegainfer_server.translation.field_names import FieldNames


async def translated_job(
    model: ServedModel, chat: ChatRequest, request_id: str, *, endpoint: str, names: FieldNames
) -> Job:
    """The chat's job, which tells its faults in the names of the request it came from.

    Raises:
        ApiError: The request asks for something impossible.
    """
    with names.told():
        job = await chat_job(model, chat, request_id)
    return msgspec.structs.replace(
        job,
        endpoint=endpoint,
        prompt_param=names.of(job.prompt_param),
        renames={ours: names.of(theirs) for ours, theirs in job.renames.items()},
    )
