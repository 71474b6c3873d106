"""Calls of each hook, with its own rule for what a failing implementation means.

Knows what hooks return; loading and unloading plugins is the host's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from pegainfer_core.plugin.extension import OfferedTier, Offers
from pegainfer_core.plugin.fault import PluginFault

if TYPE_CHECKING:
    from pegainfer_core.contract import EngineHandle, ServePlan
    from pegainfer_core.plugin.command import CommandRegistry
    from pegainfer_core.plugin.extension import KvTierFactory
    from pegainfer_core.plugin.family import ModelFamily
    from pegainfer_core.plugin.hook_book import HookBook
    from pegainfer_core.plugin.plugin_record import PluginRecord
    from pegainfer_core.plugin.request_record import RequestRecord
    from pegainfer_core.text import ReasoningParserFactory, ToolParserFactory

MUTE_AFTER_FAILURES = 5

T = TypeVar("T")


class Problem(Protocol):
    """Notes a plugin problem for the user, and raises it when the host is strict."""

    def __call__(self, message: str, cause: BaseException | None = None) -> None:
        """Note it."""
        ...


class HookCalls:
    """One method per hook.

    Args:
        book: Who implements what.
        records: The plugins by name, for messages.
        problem: Told about isolated failures.
    """

    def __init__(
        self, book: HookBook, records: Mapping[str, PluginRecord], problem: Problem
    ) -> None:
        self._book = book
        self._records = records
        self._problem = problem
        self._num_failures: dict[str, int] = {}

    def model_families(self, plugin: str) -> list[object]:
        """What one plugin offers as families, unchecked. Its exceptions pass through."""
        found: list[object] = []
        for impl in self._book.impls("model_families", plugin):
            offers = self._book.call("model_families", impl, {})
            found += _sequence("model_families", offers)
        return found

    def register_commands(self, plugin: str, cli: CommandRegistry) -> None:
        """Let one plugin add its commands. Its exceptions pass through."""
        for impl in self._book.impls("register_commands", plugin):
            self._book.call("register_commands", impl, {"cli": cli})

    def kv_tiers(self) -> Offers[OfferedTier]:
        """KV tiers by name, core's own among them; a failing plugin is noted and left out."""
        offers: Offers[OfferedTier] = Offers("KV offload tier")
        for plugin, factories in self._collect("kv_tiers", {}, _tier_factories):
            record = self._records[plugin]
            for factory in factories:
                offers.add(factory.name, OfferedTier(factory, record), record.dist)
        return offers

    def tool_parsers(self) -> Offers[ToolParserFactory]:
        """Tool-call parsers by name, core's among them; a failing plugin is noted and left out."""
        return self._parsers("tool_parsers", Offers("tool-call parser"))

    def reasoning_parsers(self) -> Offers[ReasoningParserFactory]:
        """Reasoning parsers by name, core's among them; a failing plugin is noted and left out."""
        return self._parsers("reasoning_parsers", Offers("reasoning parser"))

    def server_routes(self, app_config: object) -> list[tuple[str, list[object]]]:
        """(plugin, its route handlers); a failing plugin is noted and left out."""
        collected = self._collect("server_routes", {"app_config": app_config}, _sequence)
        return [(plugin, list(handlers)) for plugin, handlers in collected]

    def engine_ready(self, engine: EngineHandle, family: ModelFamily, plan: ServePlan) -> None:
        """Tell plugins that an engine has started.

        Raises:
            PluginFault: A plugin raised; the server must not start.
        """
        arguments = {"engine": engine, "family": family, "plan": plan}
        for impl in self._book.impls("engine_ready"):
            try:
                self._book.call("engine_ready", impl, arguments)
            except Exception as error:
                label = self._records[impl.plugin_name].label
                raise PluginFault(
                    f"plugin {label} stopped the start: engine_ready raised {_reason(error)}"
                ) from error

    def engine_stopping(self, engine: EngineHandle) -> None:
        """Tell plugins, last told first, that an engine stops; failures are logged."""
        for impl in reversed(self._book.impls("engine_stopping")):
            try:
                self._book.call("engine_stopping", impl, {"engine": engine})
            except Exception:
                self._log_exception(impl.plugin_name, "engine_stopping raised")

    def request_finished(self, record: RequestRecord) -> None:
        """Tell plugins that a request ended; one that keeps failing is no longer told."""
        for impl in self._book.impls("request_finished"):
            name = impl.plugin_name
            if self._num_failures.get(name, 0) >= MUTE_AFTER_FAILURES:
                continue
            try:
                self._book.call("request_finished", impl, {"record": record})
            except Exception:
                self._num_failures[name] = self._num_failures.get(name, 0) + 1
                muted = self._num_failures[name] >= MUTE_AFTER_FAILURES
                then = "; it is no longer called" if muted else ""
                self._log_exception(name, f"request_finished raised{then}")

    def _log_exception(self, plugin: str, what: str) -> None:
        import logging  # Discovery runs on a budget of milliseconds; only faults pay.

        logging.getLogger("pegainfer.plugins").exception(
            "plugin %s: %s", self._records[plugin].label, what
        )

    def _parsers(self, hook: str, offers: Offers[T]) -> Offers[T]:
        for plugin, result in self._collect(hook, {}, _factories):
            for name, factory in result.items():
                offers.add(name, cast("T", factory), self._records[plugin].dist)
        return offers

    def _collect(
        self, hook: str, arguments: Mapping[str, object], check: _Check[T]
    ) -> list[tuple[str, T]]:
        collected: list[tuple[str, T]] = []
        for impl in self._book.impls(hook):
            try:
                result = check(hook, self._book.call(hook, impl, arguments))
            except Exception as error:
                label = self._records[impl.plugin_name].label
                self._problem(f"plugin {label}: {hook} raised {_reason(error)}", error)
                continue
            collected.append((impl.plugin_name, result))
        return collected


T_co = TypeVar("T_co", covariant=True)


class _Check(Protocol[T_co]):
    def __call__(self, hook: str, result: object) -> T_co: ...


def _sequence(hook: str, result: object) -> list[object]:
    """Materialise a hook's answer, so that a generator's exception surfaces here."""
    if isinstance(result, Mapping | str) or not hasattr(result, "__iter__"):
        raise TypeError(f"{hook} returned {result!r}; expected a list")
    return list(cast("Sequence[object]", result))


def _tier_factories(hook: str, result: object) -> list[KvTierFactory]:
    for factory in (factories := _sequence(hook, result)):
        name = getattr(factory, "name", None)
        if not isinstance(name, str) or name in ("", "host") or set(name) & set(", \t\n"):
            raise TypeError(
                f"{hook} offers a tier of the name {name!r}; expected a word that is not host"
            )
        if not callable(getattr(factory, "open", None)):
            raise TypeError(f"{hook} offers the tier {name!r}, which has no method open")
    return cast("list[KvTierFactory]", factories)


def _factories(hook: str, result: object) -> Mapping[str, object]:
    if not isinstance(result, Mapping):
        raise TypeError(f"{hook} returned {result!r}; expected a dict of factories by name")
    for name, factory in result.items():
        if not isinstance(name, str) or name in ("", "none") or not callable(factory):
            raise TypeError(
                f"{hook} offers {factory!r} as {name!r}; expected a function or class, "
                "and a name that is not none"
            )
    return result


def _reason(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
