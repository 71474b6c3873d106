"""What a stream needs of an endpoint: pieces of an answer to bytes of events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from pegainfer_server.answer.sse import DONE, PING, raw_event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_server.api_error import ApiError
    from pegainfer_server.generation import Generation, Piece
    from pegainfer_server.protocol.usage import Usage

TEXT_MARKER: Final = "\ue000text\ue000"
"""Private-use characters, which no id or model name should hold."""


class ChunkEncoder(Protocol):
    """Encodes one stream. Calls come in the order of the methods, `pieces` many times.

    Attributes:
        ping: What is sent when there has been nothing to send for a while.
    """

    ping: bytes

    def opening(self) -> bytes:
        """Events that come before any text."""
        ...

    def pieces(self, pieces: Sequence[Piece], generation: Generation) -> bytes:
        """One event a piece, and what the generation's ending adds when it has come."""
        ...

    def usage(self, usage: Usage) -> bytes:
        """The event with the token counts."""
        ...

    def error(self, error: ApiError) -> bytes:
        """The event for a fault behind which nothing comes but the closing."""
        ...

    def closing(self) -> bytes:
        """What ends the stream, however it went."""
        ...


class DoneMarked:
    """How streams of completions and chats fail and end."""

    ping = PING

    def error(self, error: ApiError) -> bytes:
        """The error as any response has it."""
        return raw_event(error.body)

    def closing(self) -> bytes:
        """The marker that clients wait for."""
        return DONE
