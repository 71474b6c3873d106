"""The one shape in which every error reaches a client."""

import msgspec


class ErrorDetail(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong.

    Attributes:
        message: For people.
        type: Class of the error, such as `invalid_request_error`.
        param: Field at fault, or its JSON path.
        code: For programs, such as `context_length_exceeded`.
    """

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """Body of every response whose status is not 2xx.

    Attributes:
        error: What went wrong.
        request_id: As in the response's header and in the log; not in events of a stream, whose
            other events have it.
    """

    error: ErrorDetail
    request_id: str = ""
