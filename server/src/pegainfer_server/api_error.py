"""Refusals and faults as clients see them: a status, a type, a code, a message, a field."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pegainfer_core.contract import (
    ContextLength,
    Draining,
    EmptyPrompt,
    InvalidParam,
    InvalidToken,
    KvBudget,
    QueueFull,
    UnknownLora,
    Unsupported,
)
from pegainfer_server.protocol.error import ErrorDetail, ErrorResponse

if TYPE_CHECKING:
    from pegainfer_core.contract import RejectReason

INVALID_REQUEST = "invalid_request_error"
OVERLOADED = "overloaded"
UNAVAILABLE = "unavailable_error"

RETRY_QUEUE_S = 1
RETRY_UNAVAILABLE_S = 5


_MAX_CHARS = 1000
"""Of a message, or of the name of a field: both may hold what the client sent."""
_END_CHARS = 200


class ApiError(Exception):
    """Raised anywhere on a request's way; becomes the response, or an event of a running stream.

    Attributes:
        status: HTTP status, if headers have not been sent yet.
        detail: What the client reads.
        retry_after_s: When trying again makes sense.
        allow: Methods the path knows, for 405.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = INVALID_REQUEST,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: int | None = None,
        allow: str | None = None,
    ) -> None:
        message = _shortened(message)
        super().__init__(message)
        self.status = status
        self.detail = ErrorDetail(
            message=message,
            type=type,
            code=code,
            param=None if param is None else _shortened(param),
        )
        self.retry_after_s = retry_after_s
        self.allow = allow

    @property
    def headers(self) -> dict[str, str]:
        """What the response carries beside the body."""
        headers: dict[str, str] = {}
        if self.retry_after_s is not None:
            headers["retry-after"] = str(self.retry_after_s)
        if self.allow is not None:
            headers["allow"] = self.allow
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return headers

    @property
    def body(self) -> bytes:
        """The error as JSON."""
        return self.body_for("")

    def body_for(self, request_id: str) -> bytes:
        """The error as the JSON body of a response."""
        return msgspec.json.encode(ErrorResponse(self.detail, request_id))


def _shortened(text: str) -> str:
    """Its middle is the least of it: messages end in where the fault lies."""
    if len(text) <= _MAX_CHARS:
        return text
    return f"{text[: _MAX_CHARS - _END_CHARS]} [...] {text[-_END_CHARS:]}"


def invalid(message: str, param: str | None, code: str = "invalid_value") -> ApiError:
    """The client's values are wrong."""
    return ApiError(400, message, code=code, param=param)


def empty_body() -> ApiError:
    """The client sent nothing."""
    message = "the body is empty; send a JSON object with the fields of the request"
    return invalid(message, None, "json_parse_error")


def unsupported(message: str, param: str) -> ApiError:
    """The client asks for something that exists elsewhere but not here."""
    return ApiError(400, message, code="unsupported_parameter", param=param)


def model_not_found(message: str) -> ApiError:
    """No model or adapter of that name."""
    return ApiError(404, message, code="model_not_found", param="model")


def overloaded(message: str) -> ApiError:
    """Too much is queued; the client should come back."""
    return ApiError(429, message, type=OVERLOADED, code="queue_full", retry_after_s=RETRY_QUEUE_S)


def unavailable(message: str, code: str) -> ApiError:
    """No engine can take the request now; `code` says why."""
    return ApiError(503, message, type=UNAVAILABLE, code=code, retry_after_s=RETRY_UNAVAILABLE_S)


def internal(error_id: str) -> ApiError:
    """A fault of ours; the log has the rest under the id."""
    message = f"internal error {error_id}; the server's log says more under this id"
    return ApiError(500, message, type="server_error", code="internal_error")


def engine_failed(message: str) -> ApiError:
    """The engine ended a request it had admitted."""
    return ApiError(500, message, type="server_error", code="internal_error")


def rejected(reason: RejectReason, prompt_param: str, renames: dict[str, str]) -> ApiError:
    """What an engine's refusal means over HTTP.

    Args:
        reason: The engine's.
        prompt_param: Field that the prompt came from.
        renames: Fields of the engine's sampling parameters that clients know by other names.
    """
    message = str(reason)
    match reason:
        case ContextLength() | KvBudget():
            return invalid(message, prompt_param, code="context_length_exceeded")
        case InvalidToken() | EmptyPrompt():
            return invalid(message, prompt_param)
        case InvalidParam(field=field, problem=problem):
            name = renames.get(field, field)
            return invalid(f"{name} {problem}", name)
        case Unsupported(field=field):
            name = renames.get(field, field)
            return unsupported(f"{name} is not supported by this model's engine", name)
        case UnknownLora():
            return model_not_found(message)
        case QueueFull():
            return overloaded(message)
        case Draining():
            return unavailable(message, "draining")
