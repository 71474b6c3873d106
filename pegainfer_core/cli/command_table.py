"""The commands of this run: core's own and those that plugins add."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from pegainfer_core.plugin.flag import flags_of
from pegainfer_core.plugin.plugin_record import PluginState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pegainfer_core.plugin.host import PluginHost
    from pegainfer_core.plugin.launch import PreparedLaunch

O = TypeVar("O", bound=msgspec.Struct)  # noqa: E741 - the usual letter of an options type.


class Command(NamedTuple):
    """One command.

    Attributes:
        name: One or two words.
        summary: One line.
        options: Struct of its flags.
        run: Does the work, given the options; for launch commands None.
        launch: Does the work, given what was prepared and the options; None for others.
    """

    name: str
    summary: str
    options: type[msgspec.Struct]
    run: Callable[[msgspec.Struct], int] | None = None
    launch: Callable[[PreparedLaunch, msgspec.Struct], int] | None = None


class CommandTable:
    """Commands by name."""

    def __init__(self) -> None:
        self._commands: dict[str, Command] = {}

    @property
    def commands(self) -> list[Command]:
        """All commands in the order of registration."""
        return list(self._commands.values())

    def find(self, words: Sequence[str]) -> tuple[Command, Sequence[str]] | None:
        """The command these words begin with, and the words after it; longer names first."""
        for length in (2, 1):
            command = self._commands.get(" ".join(words[:length]))
            if command is not None and len(words) >= length:
                return command, words[length:]
        return None

    def add_command(
        self, name: str, *, summary: str, options: type[O], run: Callable[[O], int]
    ) -> None:
        """See `CommandRegistry`."""
        self._add(Command(name, summary, options, run=_erased(run)))

    def add_launch_command(
        self, name: str, *, summary: str, options: type[O], run: Callable[[PreparedLaunch, O], int]
    ) -> None:
        """See `CommandRegistry`."""
        self._add(Command(name, summary, options, launch=_erased_launch(run)))

    def load_plugin_commands(self, host: PluginHost) -> None:
        """Let every loaded plugin add its commands; one that fails adds none and is unloaded."""
        for record in host.records:
            if record.state is not PluginState.LOADED:
                continue
            staged = CommandTable()
            staged._commands = dict(self._commands)
            try:
                host.hooks.register_commands(record.name, staged)
            except Exception as error:
                host.reject(record.name, "register_commands raised", error)
            else:
                self._commands = staged._commands

    def _add(self, command: Command) -> None:
        if command.name in self._commands:
            raise ValueError(f"there is a command {command.name!r} already")
        flags_of(command.options)  # Fails here, where the plugin is known, and not at first use.
        self._commands[command.name] = command


def _erased(run: Callable[[O], int]) -> Callable[[msgspec.Struct], int]:
    """Commands of different option types share one table; each gets its own type back."""
    return run  # type: ignore[return-value]


def _erased_launch(
    run: Callable[[PreparedLaunch, O], int],
) -> Callable[[PreparedLaunch, msgspec.Struct], int]:
    return run  # type: ignore[return-value]
