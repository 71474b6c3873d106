"""Adapters of a running engine: what is loaded, and how that changes while requests run."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from concurrent.futures import Future


class AdapterInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A loaded adapter.

    Attributes:
        name: What requests call it, in `GenerateRequest.lora`.
        path: The folder it was read from.
        rank: Its rank.
        digest: Of its content; equal for equal adapters only, whatever their names.
    """

    name: str
    path: str
    rank: int
    digest: str


class AdapterProblem(enum.StrEnum):
    """Why adapters could not be changed."""

    INVALID = "invalid"
    """The folder or the name cannot be used; the message says why."""
    UNKNOWN = "unknown"
    """No adapter of this name is loaded."""
    CONFLICT = "conflict"
    """Requests or other adapters are in the way; another time it may do."""


class AdapterError(Exception):
    """Adapters could not be changed; nothing was.

    Attributes:
        problem: Why.
    """

    def __init__(self, problem: AdapterProblem, message: str) -> None:
        super().__init__(message)
        self.problem = problem


@runtime_checkable
class AdapterEngine(Protocol):
    """What an `EngineHandle` has beside its own methods if its engine takes adapters.

    All methods are thread safe. The futures end with `AdapterError`, or with `EngineError` when the
    engine dies.
    """

    def adapters(self) -> list[AdapterInfo]:
        """Those loaded now, by name."""
        ...

    def load_adapter(self, name: str, path: str, *, replace: bool = False) -> Future[AdapterInfo]:
        """Load an adapter beside running requests; later submissions can use it.

        Args:
            name: What requests will call it.
            path: Its folder.
            replace: Whether it takes the place of one of that name. Requests that run keep theirs.
        """
        ...

    def unload_adapter(self, name: str) -> Future[AdapterInfo]:
        """Take an adapter out; refused while requests use it."""
        ...
