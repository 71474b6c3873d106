"""Errors of the chat that another API's request became, told in that API's terms."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from pegainfer_server.api_error import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pegainfer_server.translation.conversation import Conversation

_TOOL = re.compile(r"(\$\.)?tools\[(\d+)\]\.function\b")


class FieldNames:
    """Turns names of a chat's fields into names of one request's fields."""

    def __init__(
        self,
        names: Mapping[str, str],
        conversation: Conversation,
        tool_places: Sequence[str] = (),
    ) -> None:
        """Prepare.

        Args:
            names: Names of chats to the client's; what lies inside a field keeps its own name.
            conversation: Knows where messages came from.
            tool_places: Where tools came from, if not from `tools` in the same order.
        """
        self._names = names
        self._conversation = conversation
        self._tool_places = tool_places

    def of(self, path: str) -> str:
        """The client's name of a field or of a place in one."""
        place = self._conversation.place_of(path)
        if place is not None:
            return place
        path = _TOOL.sub(self._tool_place, path)
        root = "$." if path.startswith("$.") else ""
        path = path.removeprefix(root)
        for ours, theirs in self._names.items():
            if path == ours or path.startswith((f"{ours}.", f"{ours}[")):
                return root + theirs + path[len(ours) :]
        return root + path

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Raise errors from inside with the client's names."""
        try:
            yield
        except ApiError as error:
            raise self._renamed(error) from error

    def _tool_place(self, match: re.Match[str]) -> str:
        index = int(match[2])
        known = index < len(self._tool_places)
        return (match[1] or "") + (self._tool_places[index] if known else f"tools[{index}]")

    def _renamed(self, error: ApiError) -> ApiError:
        ours = error.detail.param
        theirs = None if ours is None else self.of(ours)
        if ours is None or theirs is None or theirs == ours:
            return error
        message = error.detail.message
        # The text may name what lies inside the field, too.
        field = ours.removeprefix("$.").partition(".")[0]
        inside = {name: to for name, to in self._names.items() if name.partition(".")[0] == field}
        for name, to in (inside | {ours: theirs}).items():
            message = _with_word(message, name, to)
        return ApiError(
            error.status,
            message,
            type=error.detail.type,
            code=error.detail.code,
            param=theirs,
            retry_after_s=error.retry_after_s,
        )


def _with_word(text: str, word: str, instead: str) -> str:
    """The text with a name replaced, where it is not a part of another name."""
    return re.sub(rf"(?<![\w.]){re.escape(word)}(?!\w)", lambda _: instead, text)
