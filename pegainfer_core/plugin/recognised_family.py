"""A family that knows its checkpoints but cannot serve them yet: the start of a new plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pegainfer_core.contract import CoreOptions
from pegainfer_core.plugin.family import ChatProfile, Claim, FamilyOptions, Rejection

if TYPE_CHECKING:
    from pathlib import Path

    from pegainfer_core.contract import LaunchContext, ServePlan
    from pegainfer_core.plugin.family import ConfigDict


class RecognisedFamily:
    """Claims checkpoints by `model_type`, so that their users learn which package to watch.

    Implements `ModelFamily`; `plan` and `launch` raise `ConfigError`.
    """

    options = FamilyOptions
    # Whatever flags were given, the answer is the one refusal below.
    shared_options = frozenset(CoreOptions.__struct_fields__)
    chat = ChatProfile()

    def __init__(self, family_id: str, display_name: str, model_types: tuple[str, ...]) -> None:
        self.id = family_id
        self.display_name = display_name
        self.model_types = model_types

    def probe(self, config: ConfigDict, model_dir: Path) -> Claim | Rejection:
        """Claim by `model_type`."""
        from pegainfer_core.weights import model_type

        found = model_type(config)
        if found in self.model_types:
            return Claim("recognised; serving it is not implemented in this version")
        wanted = " or ".join(map(repr, self.model_types))
        return Rejection(f"model_type is {found!r}, not {wanted}")

    def plan(self, context: LaunchContext) -> ServePlan:
        """Refuse."""
        self._refuse(context)

    def launch(self, context: LaunchContext, plan: ServePlan) -> NoReturn:
        """Refuse."""
        self._refuse(context)

    def _refuse(self, context: LaunchContext) -> NoReturn:
        from pegainfer_core.weights import ConfigError

        raise ConfigError(
            f"{context.model_dir}: serving {self.display_name} is not implemented in this version "
            f"of pegainfer-{self.id}; look for a newer one"
        )
