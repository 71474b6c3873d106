"""Finds values for options that differ from the defaults and that their types accept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from pegainfer_core.plugin.flag import flags_of

if TYPE_CHECKING:
    from pegainfer_core.plugin import FamilyOptions
    from pegainfer_core.plugin.flag import Flag
    from pegainfer_core.testing.conformance.bench import Options, OptionValue

_CANDIDATES: Final = (True, False, *(1, 2, 0, 4, 16, 64, 256, 1024), *(0.5, 0.25, 1.5), "text")


def example_values(options: type[FamilyOptions], given: Options) -> dict[str, OptionValue]:
    """One value per option, unlike its default.

    Args:
        options: A family's options.
        given: The author's own examples, taken as they are.

    Raises:
        AssertionError: For one of them no value was found; the author must give it.
    """
    return {
        flag.field: given[flag.field] if flag.field in given else _example(options, flag)
        for flag in flags_of(options)
    }


def command_line(values: Options) -> list[str]:
    """The flags with which a user gives these values."""
    words: list[str] = []
    for field, value in values.items():
        name = field.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        else:
            words += [f"--{name}={value}"]
    return words


def _example(options: type[FamilyOptions], flag: Flag) -> OptionValue:
    for candidate in (*flag.choices, *_CANDIDATES):
        try:
            made = msgspec.convert({flag.field: candidate}, options)
        except msgspec.ValidationError:
            continue
        value: OptionValue = getattr(made, flag.field)
        if value != getattr(options(), flag.field):
            return value
    raise AssertionError(
        f"no example found for {options.__name__}.{flag.field}; put one into option_examples"
    )
