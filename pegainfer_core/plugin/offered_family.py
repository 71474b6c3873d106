"""A model family together with the plugin that offers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pegainfer_core.plugin.family import FamilyOptions, ModelFamily
from pegainfer_core.plugin.flag import flags_of

if TYPE_CHECKING:
    from pegainfer_core.plugin.plugin_record import PluginRecord

_MEMBERS = (
    "id",
    "display_name",
    "options",
    "shared_options",
    "chat",
    "probe",
    "plan",
    "launch",
)


class OfferedFamily(NamedTuple):
    """A family and its origin."""

    family: ModelFamily
    plugin: PluginRecord


def as_family(offered: object) -> ModelFamily:
    """Check that what a plugin offered is a model family.

    Raises:
        TypeError: It lacks members, or its id is not a name; the message says which.
    """
    if not isinstance(offered, ModelFamily):
        missing = [name for name in _MEMBERS if not hasattr(offered, name)]
        raise TypeError(f"{offered!r} is no ModelFamily: it lacks {', '.join(missing)}")
    if not isinstance(offered.id, str) or not offered.id:
        raise TypeError(f"{offered!r} has the id {offered.id!r}; expected a name such as 'qwen3'")
    _check_options(offered)
    return offered


def _check_options(family: ModelFamily) -> None:
    """Options become flags: a type that cannot be read must fail here, where its owner is known."""
    if not (isinstance(family.options, type) and issubclass(family.options, FamilyOptions)):
        raise TypeError(f"options of {family.id!r} are {family.options!r}, no FamilyOptions Struct")
    try:
        flags_of(family.options)
    except Exception as error:
        raise TypeError(f"options of {family.id!r}: {error}") from error
