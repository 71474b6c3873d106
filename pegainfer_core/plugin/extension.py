"""Named things that several plugins may offer, of which a user's flag or a family chooses one.

Knows neither what a parser parses nor what a tier stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from pegainfer_core.plugin.fault import PluginFault

if TYPE_CHECKING:
    from pegainfer_core.kv import KvTier, TierPlace
    from pegainfer_core.plugin.plugin_record import PluginRecord


class KvTierFactory(Protocol):
    """Makes a KV offload tier.

    The plugin is imported, and its hook called, where the command line is checked and again in the
    engine's process; only there `open` is called.

    Attributes:
        name: What users write in `--kv-offload`: no comma, no blank, not "host".
    """

    name: str

    def open(self, place: TierPlace) -> KvTier:
        """Open the tier; called once, in the engine's process, before it serves.

        Raises:
            ConfigError: It cannot be opened as asked; ends the start with this message.
        """
        ...


class OfferedTier(NamedTuple):
    """A tier's factory, and the plugin that offers it."""

    factory: KvTierFactory
    plugin: PluginRecord


T = TypeVar("T")


class Offers(Generic[T]):
    """Offers by name. Two of one name are an error only for whoever asks for that name."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._offers: dict[str, list[tuple[str, T]]] = {}

    def add(self, name: str, offer: T, dist: str) -> None:
        """Record that `dist` offers `name`; the same twice counts once."""
        present = self._offers.setdefault(name, [])
        if not any(known == offer for _, known in present):
            present.append((dist, offer))

    @property
    def names(self) -> list[str]:
        """All offered names, sorted."""
        return sorted(self._offers)

    def choose(self, name: str) -> T:
        """The one offer of that name.

        Raises:
            PluginFault: Nobody offers it, or several distributions do.
        """
        present = self._offers.get(name, [])
        if not present:
            raise PluginFault(
                f"no plugin offers the {self._what} {name!r}; "
                f"offered: {', '.join(self.names) or 'none'}"
            )
        if len(present) > 1:
            dists = " and ".join(sorted(dist for dist, _ in present))
            raise PluginFault(
                f"the {self._what} {name!r} is offered by {dists}; uninstall one of them, "
                "or name the plugins to load in PEGAINFER_PLUGINS"
            )
        return present[0][1]
