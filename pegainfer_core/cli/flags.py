"""Parses the flags of Structs, and makes the Structs from what was given. Knows no command."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from pegainfer_core.plugin.fault import UserFault
from pegainfer_core.plugin.flag import Flag, flags_of
from pegainfer_core.plugin.near_match import near_match

S = TypeVar("S", bound=msgspec.Struct)
Raw = Mapping[str, object]
"""What the user gave by field name: strings, bools and lists of strings, not yet checked."""

_TRUE = ("true", "1", "yes", "on")
_FALSE = ("false", "0", "no", "off")

#: What can be sent to the process of an engine.
_INTS = range(-(2**63), 2**63)


class UsageError(UserFault):
    """The command line is at fault: an unknown flag, a missing or a wrong value."""


class Parser(argparse.ArgumentParser):
    """argparse without abbreviations, raising `UsageError` instead of leaving the process."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False)
        self._flags: list[Flag] = []

    def error(self, message: str) -> None:  # type: ignore[override]
        """Raise instead of printing the usage."""
        raise UsageError(f"{self.prog}: {message}; see {self.prog} --help")

    def add_flags(self, title: str, flags: Iterable[Flag]) -> None:
        """Add flags under a heading of the help."""
        group = self.add_argument_group(title)
        for flag in flags:
            _add_flag(group, flag)
            self._flags.append(flag)

    def parse(self, argv: Sequence[str]) -> tuple[dict[str, object], list[str]]:
        """Return raw values of the flags given, by field, and the words that are no flags.

        Raises:
            UsageError: A flag is unknown or lacks its value.
        """
        given, rest = self.parse_known_args(_normalised(argv, self._flags))
        words = [word for word in rest if word != "--"]
        known = [name for flag in self._flags for name in flag.spellings]
        for word in words:
            if word.startswith("-") and word != "-":
                name = word.partition("=")[0]
                near = near_match(name, [*known, "--debug", "--help"])
                hint = f"did you mean {near}?" if near else f"see {self.prog} --help"
                raise UsageError(f"{self.prog}: unknown flag {name}; {hint}")
        return vars(given), words


def _add_flag(group: argparse._ArgumentGroup, flag: Flag) -> None:
    text = flag.help.replace("%", "%%")
    if flag.is_bool:
        group.add_argument(
            flag.name,
            action=argparse.BooleanOptionalAction,
            dest=flag.field,
            default=argparse.SUPPRESS,
            help=text,
        )
        return
    metavar = "{" + ",".join(map(str, flag.choices)) + "}" if flag.choices else flag.metavar
    group.add_argument(
        flag.name,
        action="append" if flag.is_list else "store",
        dest=flag.field,
        default=argparse.SUPPRESS,
        metavar=metavar,
        help=text,
    )


def _normalised(argv: Sequence[str], flags: Iterable[Flag]) -> list[str]:
    """Rewrite `--x=false` to `--no-x` for bool flags, which argparse itself refuses."""
    bools = {flag.name: flag for flag in flags if flag.is_bool}
    words: list[str] = []
    for word in argv:
        name, equals, value = word.partition("=")
        if not equals or name not in bools:
            words.append(word)
        elif value.lower() in _TRUE:
            words.append(name)
        elif value.lower() in _FALSE:
            words.append("--no-" + name.removeprefix("--"))
        else:
            raise UsageError(f"{name}={value}: expected true or false")
    return words


def place_words(flags: Sequence[Flag], values: dict[str, object], words: Sequence[str]) -> None:
    """Give the words without a flag to the positional fields, in order; a list takes the rest.

    Raises:
        UsageError: There are too many, or a field is also given by its flag.
    """
    free = [flag for flag in flags if flag.is_positional]
    for word in words:
        if not free:
            raise UsageError(f"unexpected argument {word!r}")
        if free[0].is_list:
            given = values.setdefault(free[0].field, [])
            assert isinstance(given, list)
            given.append(word)
            continue
        flag = free.pop(0)
        if values.setdefault(flag.field, word) != word:
            raise UsageError(f"{flag.name} is given twice: {values[flag.field]!r} and {word!r}")


def build(options: type[S], values: Raw) -> S:
    """Check raw values and make the Struct.

    Raises:
        UsageError: A value does not fit its field, or a required one is missing.
    """
    return msgspec.convert(checked(options, values), options)


def checked(options: type[msgspec.Struct], values: Raw) -> dict[str, object]:
    """The given values as the fields' own types.

    Raises:
        UsageError: As `build`.
    """
    result: dict[str, object] = {}
    for flag in flags_of(options):
        if flag.field in values:
            result[flag.field] = _convert(flag, values[flag.field])
        elif flag.is_required:
            what = f"{flag.metavar} (or {flag.name})" if flag.is_positional else flag.name
            raise UsageError(f"{what} is missing: {flag.help}")
    return result


def _convert(flag: Flag, value: object) -> object:
    try:
        converted: object = msgspec.convert(value, flag.annotation, strict=False)
    except msgspec.ValidationError as error:
        if flag.choices:
            expected = "expected one of " + ", ".join(map(str, flag.choices))
        else:
            expected = _in_words(str(error))
        raise UsageError(f"{flag.name} {value}: {expected}") from error
    if isinstance(converted, int) and converted not in _INTS:
        raise UsageError(f"{flag.name} {value}: expected int of at most 64 bits")
    return converted


def _in_words(message: str) -> str:
    """A validation error such as "Expected `int | null`, got `str`", less its quoting."""
    text = message.partition(" - at ")[0].replace("`", "").replace(" | null", "")
    return text.partition(", got ")[0].replace("Expected", "expected", 1)
