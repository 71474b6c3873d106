"""The one-to-one talk between core and the model family chosen for a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

    from pegainfer_core.contract import EngineHandle, LaunchContext, ServePlan
    from pegainfer_core.weights import TensorSpecs

ConfigDict = Mapping[str, object]
"""A parsed config.json."""


class Claim(msgspec.Struct, frozen=True):
    """A family says that it serves this checkpoint; `note` says as what, for people."""

    note: str = ""


class Rejection(msgspec.Struct, frozen=True):
    """A family says why it does not serve this checkpoint.

    Attributes:
        reason: In words, for the user.
        recognised: The checkpoint is of this family's kind, but of a form it cannot serve; no other
            family is then suggested.
    """

    reason: str
    recognised: bool = False


class ChatProfile(msgspec.Struct, frozen=True, kw_only=True):
    """How chats with this family read.

    Attributes:
        tool_parser: Name of the tool-call parser, None when the family has no format.
        reasoning_parser: Name of the reasoning parser, None when the family does not reason.
        template_defaults: Values for the chat template's own variables.
    """

    tool_parser: str | None = None
    reasoning_parser: str | None = None
    template_defaults: dict[str, str | int | float | bool | None] = {}


class FamilyOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of a family's own options; every field becomes a CLI flag (Meta.description its help).

    Field types are str, int, float, bool, optional ones of these, or a Literal of strings.
    """


@runtime_checkable
class ModelFamily(Protocol):
    """One model family. Everything but `launch` is light: no NumPy, CuPy, tokenizer or device.

    Attributes:
        id: Unique over all plugins, such as "qwen3".
        display_name: For people.
        options: The family's own options.
        shared_options: Names of the `CoreOptions` fields this family honours; a flag that the user
            gave and nobody reads is an error.
        chat: How its chats read.
    """

    id: str
    display_name: str
    options: type[FamilyOptions]
    shared_options: frozenset[str]
    chat: ChatProfile

    def probe(self, config: ConfigDict, model_dir: Path) -> Claim | Rejection:
        """Claim a checkpoint, or say why not. Pure: looks at `config` and file names only."""
        ...

    def plan(self, context: LaunchContext) -> ServePlan:
        """Decide what will be served; deterministic, touches no device and no weights.

        Raises:
            ConfigError: The checkpoint's config or an option makes serving impossible; the message
                names the key or flag and what to do.
        """
        ...

    def launch(self, context: LaunchContext, plan: ServePlan) -> EngineHandle:
        """Load and start the engine in this process; returns once it is ready.

        Raises:
            ConfigError: A fault of checkpoint or options found while loading.
            EngineError: The engine could not start.
        """
        ...


@runtime_checkable
class DummyWeights(Protocol):
    """What a family adds to be served by `pegainfer dummy-weights`."""

    def tensor_specs(self, config: ConfigDict) -> TensorSpecs:
        """List a checkpoint's tensors by their names in its files. May import NumPy.

        Raises:
            ConfigError: The config lacks a size or has an impossible one.
        """
        ...
