"""Looking into parts of a request whose type one of their own fields tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from pegainfer_server.api_error import ApiError, unsupported
from pegainfer_server.protocol.decode import wrong_value

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T", bound=msgspec.Struct)

_SHOWN_CHARS = 60


def converted(value: object, model: type[T], place: str) -> T:
    """A part of a request in its own type.

    Raises:
        ApiError: 400, naming where in the request the fault lies.
    """
    try:
        return msgspec.convert(value, model)
    except msgspec.ValidationError as error:
        raise wrong_value(str(error), place) from error


def unknown_kind(what: str, kind: object, known: Sequence[str], place: str) -> ApiError:
    """The refusal of a type that is not among those of this server."""
    shown = repr(kind)[:_SHOWN_CHARS]
    return unsupported(
        f"{place}.type {shown} is not supported; {what} here are {', '.join(known)}",
        f"{place}.type",
    )


def refuse_unless(value: object, harmless: Sequence[object], place: str) -> None:
    """Refuse a known field whose value asks for something.

    Raises:
        ApiError: 400 `unsupported_parameter`.
    """
    if value is not None and value not in harmless:
        raise unsupported(f"{place} is not supported by this server; leave it out", place)
