"""What tells one written form of tool calls from another."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from pegainfer_core.text.parsing.protocol import Tools

__all__ = ["ToolFormat", "WrittenCall"]


class WrittenCall(NamedTuple):
    """A call as the model wrote it; `id` is None where the form has none."""

    name: str
    arguments: str
    id: str | None = None


class ToolFormat(Protocol):
    """One written form: each call is a block between two markers."""

    @property
    def blocks(self) -> Mapping[str, str]:
        """Markers that open a block, with those that close it."""
        ...

    @property
    def heads(self) -> Collection[str]:
        """Markers that may stand before the first block."""
        ...

    @property
    def tails(self) -> Collection[str]:
        """Markers that may stand behind a block."""
        ...

    @property
    def tags(self) -> Sequence[str]:
        """All markers, those within a block too."""
        ...

    def read(self, block: str, tools: Tools) -> WrittenCall | None:
        """The call that a block with its markers spells, None when it spells none.

        The closing marker is missing when the answer ended without it.
        """
        ...

    def is_open(self, block: str) -> bool:
        """Whether a block ends inside a value, so that a marker behind it is part of the value."""
        ...
