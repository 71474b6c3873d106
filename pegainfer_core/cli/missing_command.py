"""Says how to get a command that is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.cli.flags import UsageError
from pegainfer_core.plugin.fault import UserFault
from pegainfer_core.plugin.install_hint import install_command
from pegainfer_core.plugin.known import (
    KNOWN_PACKAGES,
    KnownPackage,
    package_for_command,
    package_for_model_type,
)
from pegainfer_core.plugin.near_match import near_match
from pegainfer_core.plugin.plugin_record import PluginState
from pegainfer_core.weights import ConfigError, load_config, resolve_model_dir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.cli.command_table import CommandTable
    from pegainfer_core.plugin.host import PluginHost


def missing_command(table: CommandTable, host: PluginHost, words: Sequence[str]) -> UserFault:
    """The fault to raise for words that begin with no known command."""
    two, one = " ".join(words[:2]), words[0]
    for name in (two, one):
        package = package_for_command(name)
        if package is not None:
            return _uninstalled(host, name, package, words)
    known = [command.name for command in table.commands]
    known += [name for package in KNOWN_PACKAGES for name in package.commands]
    below = sorted({name.partition(" ")[2] for name in known if name.startswith(f"{one} ")})
    if below:
        return UsageError(f"pegainfer {one} needs one of {', '.join(below)} behind it")
    near = near_match(two, known) or near_match(one, known)
    hint = f"did you mean {near!r}?" if near else "see pegainfer --help"
    kind = "flag" if one.startswith("-") else "command"
    return UsageError(f"unknown {kind} {one!r}; {hint}")


def _uninstalled(
    host: PluginHost, command: str, package: KnownPackage, words: Sequence[str]
) -> UserFault:
    for record in host.records:
        if record.dist == package.dist:
            why = record.error or "PEGAINFER_PLUGINS does not name it"
            if record.state is PluginState.LOADED:
                why = "this version of it has no such command"
            return UserFault(f"pegainfer {command} comes with plugin {record.label}: {why}")
    packages = [package, *_family_packages(host, words)]
    return UserFault(
        f"pegainfer {command} needs {' and '.join(p.dist for p in packages)}; "
        f"install: {install_command(*packages)}"
    )


def _family_packages(host: PluginHost, words: Sequence[str]) -> list[KnownPackage]:
    """The package for the model on the command line, so that one command installs all."""
    for word in words[1:]:
        try:
            config = load_config(resolve_model_dir(word.removeprefix("--model-path=")))
        except ConfigError:
            continue
        package = package_for_model_type(str(config.get("model_type")))
        if package is not None and all(r.dist != package.dist for r in host.records):
            return [package]
    return []
