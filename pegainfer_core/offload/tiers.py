"""Opens the tiers behind the host's, each from its plugin, and puts a guard before each."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final, Protocol, cast

from pegainfer_core.contract import TierChoice
from pegainfer_core.kv import TierPlace
from pegainfer_core.offload.guard import GuardedTier
from pegainfer_core.offload.guard_stats import GuardPolicy
from pegainfer_core.weights import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pegainfer_core.contract import LaunchContext
    from pegainfer_core.kv import KvTier
    from pegainfer_core.offload.record import RecordLayout

_CORE_PLUGIN: Final = "pegainfer_core.plugin.core_plugin"
_DISK: Final = "disk"
_DEFAULT_POLICY: Final = GuardPolicy()


class _Factory(Protocol):
    name: str

    def open(self, place: TierPlace) -> KvTier: ...


class _OffersTiers(Protocol):
    def kv_tiers(self) -> Sequence[_Factory]: ...


def open_tiers(
    context: LaunchContext,
    identity: str,
    layouts: Mapping[int, RecordLayout],
    policy: GuardPolicy = _DEFAULT_POLICY,
) -> list[GuardedTier]:
    """Open the tiers that `--kv-offload` names behind the host's, in its order.

    Args:
        context: Its options, and who offers the tiers. A context that was not made by
            `plan_launch` may name the disk tier alone.
        identity: Of the model; see `model_identity`.
        layouts: Of the records, by group.
        policy: Of the guards.

    Raises:
        ConfigError: A tier cannot be opened; those before it are closed again.
    """
    guarded: list[GuardedTier] = []
    for choice in _choices(context):
        try:
            tier = _open(choice, _place(choice, context, identity, layouts))
        except BaseException:
            for earlier in guarded:
                earlier.close()
            raise
        guarded.append(GuardedTier(choice.name, tier, layouts, policy))
    return guarded


def _choices(context: LaunchContext) -> list[TierChoice]:
    names = [name.strip() for name in (context.options.kv_offload or "").split(",")][1:]
    known = {choice.name: choice for choice in context.kv_tiers}
    own = TierChoice(name=_DISK, entry_point=_CORE_PLUGIN)
    missing = [name for name in names if name not in known and name != _DISK]
    if missing:
        raise ConfigError(f"--kv-offload {context.options.kv_offload}: nobody offers {missing[0]}")
    return [known.get(name, own) for name in names]


def _place(
    choice: TierChoice, context: LaunchContext, identity: str, layouts: Mapping[int, RecordLayout]
) -> TierPlace:
    options = context.options
    capacity_bytes = int(options.kv_offload_disk_gib * 2**30)
    return TierPlace(
        identity=identity,
        record_bytes={group: layout.record_bytes for group, layout in layouts.items()},
        # As many bytes for each: which of them a prefix will lack cannot be known.
        ratios={g: layouts[0].record_bytes / layouts[g].record_bytes for g in layouts if g},
        # The flag speaks of the disk; how much another tier may hold is its own business.
        capacity_bytes=capacity_bytes if choice.name == _DISK else None,
        path=options.kv_offload_disk_path,
    )


def _open(choice: TierChoice, place: TierPlace) -> KvTier:
    module, _, attribute = choice.entry_point.partition(":")
    try:
        imported = importlib.import_module(module)
        plugin = cast(_OffersTiers, getattr(imported, attribute) if attribute else imported)
        factories = {factory.name: factory for factory in plugin.kv_tiers()}
        return factories[choice.name].open(place)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"the KV offload tier {choice.name!r} of plugin {choice.entry_point} cannot be opened: "
            f"{type(error).__name__}: {error}"
        ) from error
