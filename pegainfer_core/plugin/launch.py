"""From a model path and options to what a worker needs: family, launch context and plan.

The one road to an engine for the command line, the server and the offline API. Starts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pegainfer_core.contract import CoreOptions, LaunchContext
from pegainfer_core.plugin.fault import UserFault
from pegainfer_core.plugin.near_match import near_match
from pegainfer_core.plugin.select import select_family
from pegainfer_core.plugin.tier_choice import choose_tiers
from pegainfer_core.weights import load_config, resolve_model_dir

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from pegainfer_core.contract import ServePlan
    from pegainfer_core.plugin.family import ConfigDict, FamilyOptions, ModelFamily
    from pegainfer_core.plugin.host import PluginHost
    from pegainfer_core.plugin.offered_family import OfferedFamily
    from pegainfer_core.plugin.plugin_record import PluginRecord


class ChosenModel(NamedTuple):
    """A checkpoint and the family that serves it."""

    model_dir: Path
    config: ConfigDict
    offered: OfferedFamily


@dataclass(frozen=True)
class PreparedLaunch:
    """All that is decided before an engine starts.

    Attributes:
        host: The loaded plugins; its hooks accompany the engine.
        family: The chosen family.
        plugin: The plugin that offers it.
        config: The checkpoint's parsed config.json.
        context: What a worker process needs.
        plan: What will be served.
    """

    host: PluginHost
    family: ModelFamily
    plugin: PluginRecord
    config: ConfigDict
    context: LaunchContext
    plan: ServePlan


def flag_name(field: str) -> str:
    """The command-line spelling of an option's field."""
    return "--" + field.replace("_", "-")


def choose_model(
    host: PluginHost,
    model: str | os.PathLike[str],
    *,
    family: str | None = None,
    revision: str | None = None,
) -> ChosenModel:
    """Find a checkpoint and the family that serves it.

    Args:
        host: The loaded plugins.
        model: A checkpoint folder, or a repo id in the Hugging Face cache.
        family: Skips the families' own opinion.
        revision: Commit or ref of a cached repo.

    Raises:
        ConfigError: Folder or config.json cannot be read.
        SelectionError: Not exactly one family serves it.
    """
    model_dir = resolve_model_dir(model, revision).absolute()
    config = load_config(model_dir)
    return ChosenModel(model_dir, config, select_family(host, config, model_dir, family))


def plan_launch(
    host: PluginHost,
    chosen: ChosenModel,
    *,
    options: CoreOptions | None = None,
    given: Collection[str] | None = None,
    family_options: Mapping[str, object] | None = None,
    threads: int | None = None,
) -> PreparedLaunch:
    """Check options against the family and let it plan.

    Args:
        host: The loaded plugins.
        chosen: From `choose_model`.
        options: The core's options.
        given: Fields of `options` the user set; by default those that differ from their defaults.
        family_options: Values for the family's own options.
        threads: Compute threads of a CPU backend.

    Raises:
        UserFault: An option is out of range, unknown, or not used by the family.
        ConfigError: The family cannot serve the checkpoint this way.
    """
    family, plugin = chosen.offered
    core = _checked_core(CoreOptions() if options is None else options)
    used = _non_defaults(core) if given is None else given
    refuse_unused(family, used)
    core, kv_tiers = choose_tiers(host, core, used)
    own = checked_family_options(family, {} if family_options is None else family_options)
    context = LaunchContext(
        model_dir=str(chosen.model_dir),
        family=family.id,
        entry_point=plugin.entry_point,
        options=core,
        family_options=msgspec.to_builtins(own),
        threads=threads,
        kv_tiers=kv_tiers,
    )
    plan = family.plan(context)
    return PreparedLaunch(host, family, plugin, chosen.config, context, plan)


def prepare_launch(
    host: PluginHost,
    model: str | os.PathLike[str],
    *,
    family: str | None = None,
    revision: str | None = None,
    options: CoreOptions | None = None,
    family_options: Mapping[str, object] | None = None,
    threads: int | None = None,
) -> PreparedLaunch:
    """`choose_model`, then `plan_launch`; see there."""
    chosen = choose_model(host, model, family=family, revision=revision)
    return plan_launch(
        host, chosen, options=options, family_options=family_options, threads=threads
    )


def refuse_unused(family: ModelFamily, given: Collection[str]) -> None:
    """Refuse core options that the family does not read.

    Raises:
        UserFault: There is one; the message names flag and family.
    """
    for field in sorted(given):
        if field not in family.shared_options:
            used = ", ".join(flag_name(name) for name in sorted(family.shared_options)) or "none"
            raise UserFault(
                f"{flag_name(field)} is not used by the model family {family.id}; "
                f"of the common flags it uses {used}"
            )


def checked_family_options(family: ModelFamily, values: Mapping[str, object]) -> FamilyOptions:
    """Build the family's own options from plain values.

    Raises:
        UserFault: A name is unknown or a value does not fit.
    """
    known = [field.name for field in msgspec.structs.fields(family.options)]
    for name in values:
        if name not in known:
            near = near_match(name, known)
            hint = f"did you mean {near!r}?" if near else f"it has {', '.join(known) or 'none'}"
            raise UserFault(f"the model family {family.id} has no option {name!r}; {hint}")
    try:
        return msgspec.convert(dict(values), family.options)
    except msgspec.ValidationError as error:
        raise UserFault(f"options of the model family {family.id}: {error}") from error


def _checked_core(options: CoreOptions) -> CoreOptions:
    """Structs do not check what they are built with, so that callers in Python need this."""
    try:
        return msgspec.convert(msgspec.to_builtins(options), CoreOptions)
    except msgspec.ValidationError as error:
        raise UserFault(f"core options: {error}") from error


def _non_defaults(options: CoreOptions) -> list[str]:
    return list(msgspec.to_builtins(options))
