"""Tools of a request, and the calls of an answer."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

FunctionName = Annotated[str, Meta(pattern=r"^[\w./-]{1,128}$")]


class FunctionDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may call.

    Attributes:
        parameters: JSON schema of its arguments.
        strict: Whether calls are held to the schema.
    """

    name: FunctionName
    description: str | None = None
    parameters: dict[str, object] | None = None
    strict: bool | None = None


class ToolDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """A tool; functions are the only kind."""

    type: Literal["function"]
    function: FunctionDeclaration


class ToolDeclarations(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a request that declares tools."""

    tools: list[ToolDeclaration]


class ChosenFunction(msgspec.Struct, frozen=True, kw_only=True):
    """A declared function, by its name."""

    name: str


class FunctionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The function that must be called."""

    type: Literal["function"]
    function: ChosenFunction


class CalledFunction(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments are JSON text, as the model wrote it."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call."""

    id: str
    type: str
    function: CalledFunction


class FunctionDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What a chunk adds to a called function."""

    name: str | UnsetType = UNSET
    arguments: str


class ToolCallChunk(msgspec.Struct, frozen=True, kw_only=True):
    """What a chunk adds to a call; only the first has id, type and name."""

    index: int
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    function: FunctionDelta
