"""What the host knows about one installed plugin, fit for printing."""

from __future__ import annotations

import enum

import msgspec


class PluginState(enum.StrEnum):
    """How far a plugin got."""

    DISCOVERED = "discovered"
    BLOCKED = "blocked"
    INCOMPATIBLE = "incompatible"
    FAILED = "failed"
    LOADED = "loaded"


class PluginRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One entry point of the group `pegainfer.plugins` and what became of it.

    Attributes:
        name: Short name, the entry point's.
        dist: Distribution that installed it.
        version: That distribution's version.
        location: The plugin's file once imported, before that the folder of its metadata.
        entry_point: `module` or `module:attr`.
        state: How far it got.
        api: Hook API version it declares, None while unknown.
        hooks: Hooks it implements.
        families: Ids of the model families it offers.
        error: Why it is incompatible or failed, in one line.
        traceback: The same in full.
    """

    name: str
    dist: str
    version: str
    location: str
    entry_point: str
    state: PluginState = PluginState.DISCOVERED
    api: str | None = None
    hooks: list[str] = []
    families: list[str] = []
    error: str = ""
    traceback: str = ""

    @property
    def label(self) -> str:
        """How messages name it."""
        return f"{self.name!r} (package {self.dist} {self.version})"
