"""The command line of commands that launch a model: argv to family, launch context and plan.

Two passes: the first knows core's and the command's flags and finds the family, the second adds
that family's own. A flag that nobody reads is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
from msgspec import Meta

from pegainfer_core.cli.flags import (
    Parser,
    UsageError,
    build,
    checked,
    place_words,
)
from pegainfer_core.contract import CoreOptions
from pegainfer_core.plugin.fault import PluginFault
from pegainfer_core.plugin.flag import Flag, flags_of
from pegainfer_core.plugin.launch import ChosenModel, PreparedLaunch, choose_model, plan_launch

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pegainfer_core.cli.command_table import Command
    from pegainfer_core.plugin.host import PluginHost


_Group = tuple[str, list[Flag]]
"""Heading in the help, and flags."""


class ModelOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which model, before anything is known of it."""

    model_path: Annotated[
        str,
        Meta(
            description="checkpoint folder, or a repo id in the Hugging Face cache",
            extra={"positional": True, "metavar": "MODEL"},
        ),
    ]
    family: Annotated[
        str | None,
        Meta(description="model family to use without asking which one claims the checkpoint"),
    ] = None
    revision: Annotated[
        str | None, Meta(description="commit or ref of a cached repo (default: main)")
    ] = None


class ParsedLaunch(NamedTuple):
    """What a launch command gets to work with."""

    launch: PreparedLaunch
    options: msgspec.Struct


def parse_launch(host: PluginHost, command: Command, argv: Sequence[str]) -> ParsedLaunch:
    """Turn the words after a launch command's name into a prepared launch and its options.

    Raises:
        UsageError: The command line is at fault.
        UserFault: No family serves the model, or it does not use a flag.
        ConfigError: The checkpoint is at fault.
    """
    common = _common_groups(command)
    taken = {flag.name for _, flags in common for flag in flags}
    first = _parser(command, [*common, *_family_groups(host, command, taken)])
    model, given = _find_model(first, argv)
    chosen = choose_model(host, model.model_path, family=model.family, revision=model.revision)
    own = flags_of(chosen.offered.family.options)
    _refuse_foreign(chosen, host, given.keys() - {flag.field for flag in own})
    values, words = _parser(command, [*common, ("family", own)]).parse(argv)
    place_words([flag for _, flags in common for flag in flags], values, words)
    core = checked(CoreOptions, values)
    options = build(command.options, values)
    launch = plan_launch(
        host,
        chosen,
        options=msgspec.convert(core, CoreOptions),
        given=core.keys(),
        family_options=checked(chosen.offered.family.options, values),
    )
    return ParsedLaunch(launch, options)


def launch_help(host: PluginHost, command: Command) -> str:
    """The help of a launch command, with the flags of every loaded family."""
    common = _common_groups(command)
    taken = {flag.name for _, flags in common for flag in flags}
    return _parser(command, [*common, *_family_groups(host, command, taken)]).format_help()


def _common_groups(command: Command) -> list[_Group]:
    return [
        ("model", flags_of(ModelOptions)),
        ("engine", flags_of(CoreOptions)),
        (command.name, flags_of(command.options)),
    ]


def _family_groups(host: PluginHost, command: Command, taken: set[str]) -> list[_Group]:
    """Every family's flags, each name once, so that pass one can tell values from words."""
    groups: list[_Group] = []
    seen: set[str] = set()
    for offered in host.families.values():
        flags = flags_of(offered.family.options)
        for flag in flags:
            if flag.name in taken:
                raise PluginFault(
                    f"the model family {offered.family.id} (package {offered.plugin.dist}) has an "
                    f"option {flag.name}, which pegainfer {command.name} has already"
                )
        fresh = [flag for flag in flags if flag.name not in seen]
        seen.update(flag.name for flag in fresh)
        if fresh:
            groups.append((f"model family {offered.family.id}", fresh))
    return groups


def _parser(command: Command, groups: Sequence[_Group]) -> Parser:
    parser = Parser(f"pegainfer {command.name}", command.summary)
    for title, flags in groups:
        parser.add_flags(title, flags)
    return parser


def _find_model(first: Parser, argv: Sequence[str]) -> tuple[ModelOptions, dict[str, object]]:
    """Pass one: which model, and everything that was given.

    Two families may give one flag name different shapes, so that here a word may turn out to be a
    flag's value; pass two settles that.
    """
    given, words = first.parse(argv)
    if words:
        given.setdefault("model_path", words[0])
    return build(ModelOptions, given), given


def _refuse_foreign(chosen: ChosenModel, host: PluginHost, fields: Collection[str]) -> None:
    for offered in host.families.values():
        for flag in flags_of(offered.family.options):
            if flag.field in fields:
                raise UsageError(
                    f"{flag.name} is a flag of the model family {offered.family.id}, but "
                    f"{chosen.model_dir} is served by {chosen.offered.family.id}"
                )
