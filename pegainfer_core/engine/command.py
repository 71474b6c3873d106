"""What reaches an engine's driver loop, from another thread or over a socket."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

import msgspec

from pegainfer_core.contract import AdapterError, AdapterInfo, EngineError, GenerateRequest

if TYPE_CHECKING:
    from collections.abc import Callable


class Submit(msgspec.Struct, frozen=True, array_like=True, tag="submit"):
    """Open and queue a request."""

    request: GenerateRequest


class Abort(msgspec.Struct, frozen=True, array_like=True, tag="abort"):
    """End a request; unknown and ended ids are ignored."""

    request_id: int


class ResetPrefixCache(msgspec.Struct, frozen=True, array_like=True, tag="reset"):
    """Drop cached pages that no live request uses; those in host memory too, unless told not to."""

    device_only: bool = False


class Close(msgspec.Struct, frozen=True, array_like=True, tag="close"):
    """Fail what is open and leave the loop."""


class LoadAdapter(msgspec.Struct, frozen=True, array_like=True, tag="load"):
    """Read an adapter and put it into a slot; the answer carries the ticket."""

    ticket: int
    name: str
    path: str
    replace: bool


class UnloadAdapter(msgspec.Struct, frozen=True, array_like=True, tag="unload"):
    """Take an adapter out; the answer carries the ticket."""

    ticket: int
    name: str


class ChangeAdapters:
    """A change to make between two steps; crosses threads, never a socket.

    Args:
        change: Made on the engine's thread.

    Attributes:
        future: What came of it.
    """

    def __init__(self, change: Callable[[], AdapterInfo]) -> None:
        self.future: Future[AdapterInfo] = Future()
        self._change = change

    def run(self) -> None:
        """Make it.

        Raises:
            Exception: What is not the asker's fault; the future has it too.
        """
        try:
            info = self._change()
        except AdapterError as error:
            self.future.set_exception(error)
        except BaseException as error:
            self.future.set_exception(EngineError(f"{type(error).__name__}: {error}"))
            raise
        else:
            self.future.set_result(info)

    def refuse(self, message: str) -> None:
        """The engine has ended."""
        self.future.set_exception(EngineError(message))


class GrammarRead(msgspec.Struct, frozen=True):
    """A request's grammar was read, or cannot be: `problem` is then a clause. Never on a socket."""

    request_id: int
    problem: str


Command = Submit | Abort | ResetPrefixCache | Close
