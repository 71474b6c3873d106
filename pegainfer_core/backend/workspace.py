"""Step buffers: named scratch that is laid out once, for the largest step, and then stays put.

Knows no model; ops and model code ask for what they need by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.backend.dtype import DType
    from pegainfer_core.backend.tensor import Tensor

    Allocate = Callable[[tuple[int, ...], DType], Tensor]


class WorkspaceError(RuntimeError):
    """A step asked for scratch that was not laid out before; a bug in an op or a model."""


class Workspace:
    """The arena of one model's steps.

    A warm-up step finds out what is needed; after `freeze` the set of buffers and their addresses
    are fixed, so that recorded graphs may hold them and no step allocates.

    Args:
        allocate: Makes an uninitialised tensor of a shape and type.
        max_tokens: Most tokens in one step.
        max_context_tokens: Longest context of one row.
    """

    def __init__(self, allocate: Allocate, max_tokens: int, max_context_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.max_context_tokens = max_context_tokens
        self._allocate = allocate
        self._buffers: dict[str, Tensor] = {}
        self._frozen = False

    def buffer(self, name: str, width: int, dtype: DType, rows: int | None = None) -> Tensor:
        """The buffer of this name; the first call lays it out.

        Args:
            name: Equal names share memory, so two buffers that live at once need two names.
            width: Values a row.
            dtype: Their type.
            rows: Rows (default: `max_tokens`).

        Returns:
            [rows, width]; its content is whatever the last user left.

        Raises:
            WorkspaceError: The name is in use with another shape or type, or the workspace is
                frozen and has no such buffer.
        """
        found = self._buffers.get(name)
        if found is None:
            return self._lay_out(name, (rows or self.max_tokens, width), dtype)
        if found.shape[1] != width or found.dtype is not dtype or found.shape[0] < (rows or 0):
            raise WorkspaceError(
                f"workspace buffer {name!r} is {found.shape} of {found.dtype.value}, "
                f"but {(rows or self.max_tokens, width)} of {dtype.value} was asked for"
            )
        return found

    def freeze(self) -> None:
        """Allow no further buffers."""
        self._frozen = True

    def _lay_out(self, name: str, shape: tuple[int, int], dtype: DType) -> Tensor:
        if self._frozen:
            raise WorkspaceError(f"workspace is frozen and has no buffer {name!r}")
        buffer = self._buffers[name] = self._allocate(shape, dtype)
        return buffer
