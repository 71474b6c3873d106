"""How plugins add commands to the `pegainfer` command line. Knows no command.

A command's flags are the fields of a Struct: `num_prompts: int = 100` is `--num-prompts`, a bool is
`--x` or `--no-x`, a list may be given several times, a Literal lists its choices, a field without a
default is required, and `Meta(description=...)` is its help. A field whose Meta has
`extra={"positional": True}` may also be given without its flag (a list then takes every word that
is left), `extra={"metavar": "N"}` names its value in the help.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.plugin.launch import PreparedLaunch

O = TypeVar("O", bound=msgspec.Struct)  # noqa: E741 - the usual letter of an options type.


class CommandRegistry(Protocol):
    """What `register_commands` gets. Names may have two words, such as "bench serve"."""

    def add_command(
        self, name: str, *, summary: str, options: type[O], run: Callable[[O], int]
    ) -> None:
        """Add a command.

        Args:
            name: What users type.
            summary: One line for `pegainfer --help`.
            options: Struct of the command's flags.
            run: Does the work and returns the exit code. It raises `UserFault` for what the user
                can mend; heavy imports belong inside it.

        Raises:
            ValueError: The name is taken.
        """
        ...

    def add_launch_command(
        self, name: str, *, summary: str, options: type[O], run: Callable[[PreparedLaunch, O], int]
    ) -> None:
        """Add a command that launches a model.

        The command line then also takes the model path, the core's flags, and the flags of the
        family that claims the checkpoint; `run` gets what was prepared from them.

        Raises:
            ValueError: The name is taken.
        """
        ...
