"""The public id of a request: the client's, else one of ours; every response echoes it."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

from pegainfer_server.api_error import invalid

if TYPE_CHECKING:
    from litestar.types import Scope

HEADER = b"x-request-id"
_KEY = "pegainfer_request_id"
_FROM_CLIENT = "pegainfer_request_id_from_client"
# Ids must differ, not be secret; a system call for each would cost more than the rest of them.
_random = random.Random(random.SystemRandom().getrandbits(128))
_VALID = re.compile(r"[\x21-\x7e]{1,128}")


def open_request_id(scope: Scope, header: bytes | None) -> bool:
    """Settle the id of a new request; False when the client's header is unusable."""
    given = header.decode("latin-1") if header else ""
    usable = _VALID.fullmatch(given) is not None
    state = _state(scope)
    state[_KEY] = given if usable else f"{_random.getrandbits(128):032x}"
    state[_FROM_CLIENT] = usable
    return usable or not given


def request_id(scope: Scope) -> str:
    """The id of this request."""
    return str(_state(scope)[_KEY])


def adopt_request_id(scope: Scope, from_body: str | None) -> str:
    """Take the body's `request_id` unless the header named one; returns the id that holds.

    Raises:
        ApiError: 400, the id cannot be sent back in a header.
    """
    if from_body is not None:
        if not _VALID.fullmatch(from_body):
            raise invalid(
                "request_id takes 1 to 128 visible ASCII characters and no spaces", "request_id"
            )
        if not _state(scope)[_FROM_CLIENT]:
            _state(scope)[_KEY] = from_body
    return request_id(scope)


def _state(scope: Scope) -> dict[str, object]:
    state: dict[str, object] = scope.setdefault("state", {})
    return state
