"""Errors of the chat that another API's request became, told in that API's terms."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from pegainfer_server.api_error import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pegainfer_server.translation.conversation import Conversation

_TOOL = re.compile(r"(\$\.)?tools\[(\d+)\]\.function\b")


class FieldNames:
    """Turns names of a chat's fields into names of one request's fields."""

    def __init__(self, names: Mapping[str, str], conversation: Conversation) -> None:
        """Prepare.

        Args:
            names: Names of chats to the client's; what lies inside a field keeps its own name.
            conversation: Knows where messages came from.
        """
        self._names = names
        self._conversation = conversation

    def of(self, path: str) -> str:
        """The client's name of a field or of a place in one."""
        place = self._conversation.place_of(path)
        if place is not None:
            return place
        path = _TOOL.sub(r"\1tools[\2]", path)
        for ours, theirs in self._names.items():
            if path == ours or path.startswith((f"{ours}.", f"{ours}[")):
                return theirs + path[len(ours) :]
        return path

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Raise errors from inside with the client's names."""
        try:
            yield
        except ApiError as error:
            raise self._renamed(error) from error

    def _renamed(self, error: ApiError) -> ApiError:
        ours = error.detail.param
        theirs = None if ours is None else self.of(ours)
        if ours is None or theirs is None or theirs == ours:
            return error
        word = rf"(?<![\w.$]){re.escape(ours)}(?!\w)"
        return ApiError(
            error.status,
            re.sub(word, lambda _: theirs, error.detail.message),
            type=error.detail.type,
            code=error.detail.code,
            param=theirs,
            retry_after_s=error.retry_after_s,
        )
