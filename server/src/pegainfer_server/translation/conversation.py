"""Chat messages, put together from what other APIs call items or blocks.

Remembers where each part came from, so that a fault is told in the client's own terms. Knows no
other API.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from msgspec import UNSET

from pegainfer_server.api_error import invalid
from pegainfer_server.chat_prompt import MAX_MESSAGES
from pegainfer_server.protocol.message import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_server.protocol.message import Role

Content: TypeAlias = "str | dict[str, object] | Sequence[dict[str, object]]"
"""Text, a part or parts; which parts are text is the text layer's to know."""

_PLACE = re.compile(r"\$?\.?messages\[(\d+)\](?:\.(content|tool_calls)\[(\d+)\])?(.*)", re.DOTALL)
_SEPARATOR = "\n"


@dataclass
class _Turn:
    """One message in the making, with the place of each thing in it."""

    role: Role
    place: str
    call_id: str | None = None
    parts: list[dict[str, object]] = field(default_factory=list)
    part_places: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[dict[str, object]] = field(default_factory=list)
    call_places: list[str] = field(default_factory=list)

    def add(self, content: Content, place: str) -> None:
        if isinstance(content, str):
            content = {"type": "text", "text": content}
        if isinstance(content, dict):
            self.parts.append(content)
            self.part_places.append(place)
            return
        self.parts += content
        self.part_places += [f"{place}[{index}]" for index in range(len(content))]

    def message(self) -> Message:
        return Message(
            role=self.role,
            content=self.parts,
            tool_call_id=UNSET if self.call_id is None else self.call_id,
            tool_calls=self.calls or UNSET,
            reasoning_content=_SEPARATOR.join(self.reasoning) or UNSET,
        )


class Conversation:
    """Collects turns, oldest first.

    What an assistant says, thinks and calls in a row is one turn, as it was one answer. System
    texts are one message at the beginning; later ones become turns of the user, for most
    templates know a system message at the beginning only.
    """

    def __init__(self, arguments_name: str, param: str) -> None:
        """Begin.

        Args:
            arguments_name: What the client calls the arguments of a call.
            param: Field that holds the conversation.
        """
        self._arguments_name = arguments_name
        self._param = param
        self._turns: list[_Turn] = []

    def check_size(self, num_items: int) -> None:
        """Refuse so many items or blocks that translating them would hold up other requests.

        Raises:
            ApiError: 400.
        """
        if num_items > MAX_MESSAGES:
            raise invalid(
                f"{self._param} holds {num_items} items; at most {MAX_MESSAGES}", self._param
            )

    @property
    def messages(self) -> list[Message]:
        """All turns as chat messages."""
        return [turn.message() for turn in self._turns]

    @property
    def ends_with_assistant(self) -> bool:
        """Whether the last turn is an assistant's."""
        return bool(self._turns) and self._turns[-1].role == "assistant"

    def instruct(self, content: Content, place: str) -> None:
        """Add a system text; `place` is where its content stands in the request."""
        if not self._turns:
            self._turns.append(_Turn("system", place))
        elif len(self._turns) > 1 or self._turns[0].role != "system":
            self._turns.append(_Turn("user", place))
        self._turns[-1].add(content, place)

    def ask(self, content: Content, place: str) -> None:
        """Add a user's turn."""
        self._turns.append(_Turn("user", place))
        self._turns[-1].add(content, place)

    def answer(self, content: Content, place: str) -> None:
        """Add to the assistant's turn."""
        self._assistant(place).add(content, place)

    def think(self, text: str, place: str) -> None:
        """Add reasoning to the assistant's turn."""
        self._assistant(place).reasoning.append(text)

    def call(self, call_id: str, name: str, arguments: object, place: str) -> None:
        """Add a call to the assistant's turn; arguments are JSON text or a mapping."""
        turn = self._assistant(place)
        function = {"name": name, "arguments": arguments}
        turn.calls.append({"id": call_id, "type": "function", "function": function})
        turn.call_places.append(place)

    def result(self, call_id: str, content: Content, place: str) -> None:
        """Add what a call returned."""
        self._turns.append(_Turn("tool", place, call_id))
        self._turns[-1].add(content, place)

    def more(self, content: Content, place: str) -> None:
        """Add to the last turn, whoever's it is."""
        self._turns[-1].add(content, place)

    def place_of(self, path: str) -> str | None:
        """Where a path into the messages lies in the request; None for other paths."""
        match = _PLACE.fullmatch(path)
        if match is None:
            return None
        turn = self._turns[int(match[1])]
        if match[2] == "content":
            return turn.part_places[int(match[3])] + match[4]
        if match[2] == "tool_calls":
            inside = match[4].replace(".function.arguments", f".{self._arguments_name}", 1)
            return turn.call_places[int(match[3])] + inside
        return turn.place

    def _assistant(self, place: str) -> _Turn:
        if not self.ends_with_assistant:
            self._turns.append(_Turn("assistant", place))
        return self._turns[-1]
