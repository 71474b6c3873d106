"""Errors, and ids to find them by, in the shape of the API whose path was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import UNSET

from pegainfer_server.protocol.messages_answer import MessageError, MessageFault

if TYPE_CHECKING:
    from pegainfer_server.api_error import ApiError

MESSAGES_PATH: Final = "/v1/messages"

_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def error_body(error: ApiError, path: str, request_id: str) -> bytes:
    """The body of a response that is an error."""
    if _is_messages(path):
        return msgspec.json.encode(message_error(error, request_id))
    return error.body_for(request_id)


def id_headers(path: str, request_id: bytes) -> list[tuple[bytes, bytes]]:
    """Headers that name the request beside the one that every response has."""
    return [(b"request-id", request_id)] if _is_messages(path) else []


def message_error(error: ApiError, request_id: str | None = None) -> MessageError:
    """An error as Anthropic's API tells it. It has no field for the field: the text names it."""
    detail = error.detail
    named = detail.param is None or detail.param in detail.message
    message = detail.message if named else f"{detail.param}: {detail.message}"
    if detail.code == "context_length_exceeded":
        # The words of the hosted API, by which agents know that they must shorten their history.
        message = f"prompt is too long: {message}"
    other = "api_error" if error.status >= 500 else "invalid_request_error"
    return MessageError(
        error=MessageFault(type=_TYPES.get(error.status, other), message=message),
        request_id=UNSET if request_id is None else request_id,
    )


def _is_messages(path: str) -> bool:
    return path == MESSAGES_PATH or path.startswith(f"{MESSAGES_PATH}/")
