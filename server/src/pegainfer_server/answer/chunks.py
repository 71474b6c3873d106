"""What a stream needs of an endpoint: pieces of an answer to bytes of events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_server.generation import Generation, Piece
    from pegainfer_server.protocol.usage import Usage

TEXT_MARKER: Final = "\ue000text\ue000"
"""Private-use characters, which no id or model name should hold."""


class ChunkEncoder(Protocol):
    """Encodes one stream. Calls come in the order of the methods, `pieces` many times."""

    def opening(self) -> bytes:
        """Events that come before any text."""
        ...

    def pieces(self, pieces: Sequence[Piece], generation: Generation) -> bytes:
        """One event a piece, and what the generation's ending adds when it has come."""
        ...

    def usage(self, usage: Usage) -> bytes:
        """The event with the token counts."""
        ...
