"""Loads plugins, isolates their faults and calls their hooks.

Knows nothing of checkpoints: choosing a family is `select`, launching it `launch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pegainfer_core.plugin import core_plugin
from pegainfer_core.plugin.api import IncompatibleApi, check_api, declared_api
from pegainfer_core.plugin.core_plugin import CORE_RECORD
from pegainfer_core.plugin.discovery import find_plugins
from pegainfer_core.plugin.fault import PluginFault
from pegainfer_core.plugin.hook_book import HookBook
from pegainfer_core.plugin.hook_calls import HookCalls
from pegainfer_core.plugin.known import FIRST_PARTY_DISTS
from pegainfer_core.plugin.near_match import near_match
from pegainfer_core.plugin.offered_family import OfferedFamily, as_family
from pegainfer_core.plugin.plugin_record import PluginRecord, PluginState
from pegainfer_core.plugin.settings import PLUGINS_VARIABLE, HostSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from importlib.metadata import EntryPoint

    from pegainfer_core.plugin.family import ModelFamily


class PluginHost:
    """The plugins of this process. Make one with `PluginHost.load()`.

    A plugin that cannot be loaded, or whose load-time hooks raise, leaves nothing behind but its
    record and a warning.

    Attributes:
        hooks: Calls of the hooks that run after loading.
        warnings: What went wrong so far, a line each.
    """

    def __init__(self, settings: HostSettings) -> None:
        self._settings = settings
        self._book = HookBook(trace=settings.trace)
        self._records: dict[str, PluginRecord] = {}
        self._families: dict[str, OfferedFamily] = {}
        self.warnings: list[str] = []
        self.hooks = HookCalls(self._book, self._records, self.problem)
        self._records[CORE_RECORD.name] = CORE_RECORD
        self._book.register(core_plugin, CORE_RECORD.name)

    @classmethod
    def load(cls, settings: HostSettings | None = None) -> PluginHost:
        """Discover and load the installed plugins.

        Args:
            settings: Taken from the environment when None.

        Raises:
            PluginFault: A plugin is at fault and the settings are strict.
        """
        host = cls(HostSettings.from_environ() if settings is None else settings)
        found = find_plugins()
        for warning in found.warnings:
            host.problem(warning)
        host.load_plugins(found.plugins)
        return host

    @property
    def records(self) -> list[PluginRecord]:
        """Every plugin found, in the order of loading; core's own is not among them."""
        return [record for record in self._records.values() if record is not CORE_RECORD]

    @property
    def families(self) -> Mapping[str, OfferedFamily]:
        """The families offered by loaded plugins, by id."""
        return self._families

    def load_plugins(self, plugins: Iterable[tuple[PluginRecord, EntryPoint]]) -> None:
        """Load what the settings allow; first-party plugins first, so that they win conflicts."""
        ordered = sorted(
            plugins, key=lambda p: (p[0].dist not in FIRST_PARTY_DISTS, p[0].name, p[0].dist)
        )
        self._warn_unknown({record.name for record, _ in ordered})
        for record, entry in ordered:
            if self._settings.allowed is not None and record.name not in self._settings.allowed:
                blocked = msgspec.structs.replace(record, state=PluginState.BLOCKED)
                self._records[self._key(record)] = blocked
            elif (taken := self._records.get(record.name)) is not None:
                self._refuse_name(record, taken)
            else:
                self._load_one(record, entry)

    def reject(self, name: str, what: str, error: BaseException) -> None:
        """Unload a plugin because of an exception in its code.

        Args:
            name: The plugin.
            what: What it was doing, such as "register_commands raised".
            error: What it raised.

        Raises:
            PluginFault: The settings are strict.
        """
        import traceback  # Discovery runs on a budget of milliseconds; only faults pay.

        self._book.unregister(name)
        self._families = {
            family_id: offered
            for family_id, offered in self._families.items()
            if offered.plugin.name != name
        }
        state = PluginState.FAILED
        reason = f"{what} {type(error).__name__}: {error}"
        if isinstance(error, IncompatibleApi):
            state, reason = PluginState.INCOMPATIBLE, str(error)
        elif isinstance(error, PluginFault):
            reason = str(error)
        record = msgspec.structs.replace(
            self._records[name],
            state=state,
            error=" ".join(reason.split()),
            traceback="".join(traceback.format_exception(error)),
            families=[],
            hooks=[],
        )
        self._records[name] = record
        self.problem(f"plugin {record.label} {state}: {record.error}", error)

    def problem(self, message: str, cause: BaseException | None = None) -> None:
        """Note a plugin problem for the user.

        Raises:
            PluginFault: The settings are strict.
        """
        self.warnings.append(message)
        if self._settings.strict:
            raise PluginFault(message) from cause

    def _warn_unknown(self, names: set[str]) -> None:
        for missing in sorted((self._settings.allowed or frozenset()) - names):
            near = near_match(missing, names)
            hint = f"did you mean {near!r}?" if near else f"installed: {_listed(names)}"
            self.problem(f"{PLUGINS_VARIABLE} names {missing!r}, which is not installed; {hint}")

    def _load_one(self, record: PluginRecord, entry: EntryPoint) -> None:
        self._records[record.name] = record
        try:
            plugin: object = entry.load()
        except (Exception, SystemExit) as error:
            self.reject(record.name, "its import raised", error)
            return
        if self._book.has(plugin):
            del self._records[record.name]  # The same object under a second name adds nothing.
            return
        try:
            self._admit(record, plugin)
        except (Exception, SystemExit) as error:
            self.reject(record.name, "registering it raised", error)

    def _admit(self, record: PluginRecord, plugin: object) -> None:
        record = msgspec.structs.replace(
            record,
            api=declared_api(plugin),
            location=str(getattr(plugin, "__file__", None) or record.location),
        )
        self._records[record.name] = record
        check_api(plugin, record.dist)
        hooks = self._book.register(plugin, record.name)
        families = [as_family(offer) for offer in self.hooks.model_families(record.name)]
        record = msgspec.structs.replace(
            record,
            state=PluginState.LOADED,
            hooks=hooks,
            families=[family.id for family in families],
        )
        self._records[record.name] = record
        self._add_families(families, record)

    def _add_families(self, families: list[ModelFamily], record: PluginRecord) -> None:
        for family in families:
            present = self._families.get(family.id)
            if present is None:
                self._families[family.id] = OfferedFamily(family, record)
            elif present.family is not family:
                raise PluginFault(
                    f"it offers the model family {family.id!r}, which plugin "
                    f"{present.plugin.label} offers already; that one is used"
                )

    def _refuse_name(self, record: PluginRecord, taken: PluginRecord) -> None:
        if (record.entry_point, record.dist) == (taken.entry_point, taken.dist):
            return  # The same entry point listed twice.
        key = self._key(record)
        self._records[key] = record
        fault = PluginFault(
            f"it is left out, because plugin {taken.label} in {taken.location} has the same name; "
            f"this one is in {record.location}"
        )
        self.reject(key, "", fault)

    def _key(self, record: PluginRecord) -> str:
        taken = record.name in self._records
        return f"{record.name}@{record.dist}" if taken else record.name


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
