"""Keyword options of the offline API, told apart: core's and the family's."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pegainfer_core.contract import CoreOptions
from pegainfer_core.plugin import UserFault
from pegainfer_core.plugin.near_match import near_match

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pegainfer_core.plugin import ModelFamily

OptionValue = str | int | float | bool | list[str] | None


class SplitOptions(NamedTuple):
    """Values by field name."""

    core: dict[str, OptionValue]
    own: dict[str, OptionValue]


def split_options(options: Mapping[str, OptionValue], family: ModelFamily) -> SplitOptions:
    """Tell core's options from the family's; neither's values are checked here.

    Raises:
        UserFault: Nobody knows an option.
    """
    core_names = {field.name for field in msgspec.structs.fields(CoreOptions)}
    own_names = {field.name for field in msgspec.structs.fields(family.options)}
    for name in options:
        if name not in core_names | own_names:
            near = near_match(name, core_names | own_names)
            hint = f"did you mean {near!r}?" if near else "see pegainfer serve --help for all"
            raise UserFault(f"LLM has no option {name!r}; {hint}")
    return SplitOptions(
        core={name: value for name, value in options.items() if name in core_names},
        own={name: value for name, value in options.items() if name not in core_names},
    )
