"""Registers plugins with pluggy and calls their hook implementations one by one.

pluggy's own call stops at the first implementation that raises and loses what the others said, so
callers iterate `impls` and decide what a failure means. Knows no plugin states.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pluggy

from pegainfer_core.plugin import hookspecs
from pegainfer_core.plugin.api import PROJECT
from pegainfer_core.plugin.near_match import near_match

if TYPE_CHECKING:
    from collections.abc import Mapping


class HookBook:
    """Which plugin implements which hook.

    Args:
        trace: Print every call and its result to stderr.
    """

    def __init__(self, trace: bool = False) -> None:
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self._trace = trace

    def has(self, plugin: object) -> bool:
        """Whether this very object is registered."""
        return self._manager.is_registered(plugin)

    def register(self, plugin: object, name: str) -> list[str]:
        """Register a plugin's implementations and return the hooks it implements.

        Raises:
            pluggy.PluginValidationError: An implementation fits no hook: misspelt, unknown
                arguments, or a wrapper. Nothing of the plugin stays registered.
        """
        try:
            self._manager.register(plugin, name)
            return self._checked_hooks(plugin)
        except Exception:
            self.unregister(name)
            raise

    def unregister(self, name: str) -> None:
        """Forget a plugin; unknown names are ignored."""
        if self._manager.has_plugin(name):
            self._manager.unregister(name=name)

    def impls(self, hook: str, plugin_name: str | None = None) -> list[pluggy.HookImpl]:
        """Implementations of one hook in registration order (`tryfirst` before, `trylast` after).

        With `plugin_name`, only that plugin's.
        """
        caller: pluggy.HookCaller = getattr(self._manager.hook, hook)
        found = [i for i in caller.get_hookimpls() if plugin_name in (None, i.plugin_name)]
        return sorted(found, key=lambda impl: (impl.trylast, not impl.tryfirst))

    def call(self, hook: str, impl: pluggy.HookImpl, arguments: Mapping[str, object]) -> object:
        """Call one implementation with those of the hook's arguments that it names."""
        try:
            result: object = impl.function(*[arguments[name] for name in impl.argnames])
        except BaseException as error:
            self._say(f"{hook} -> {impl.plugin_name}: raised {error!r}")
            raise
        self._say(f"{hook} -> {impl.plugin_name}: {result!r}")
        return result

    def _say(self, text: str) -> None:
        if self._trace:
            print(f"plugin trace: {text}", file=sys.stderr)

    def _checked_hooks(self, plugin: object) -> list[str]:
        known = [name for name in vars(hookspecs) if hasattr(self._manager.hook, name)]
        callers = self._manager.get_hookcallers(plugin) or []
        for caller in callers:
            for impl in caller.get_hookimpls():
                if impl.plugin is plugin:
                    _check_impl(impl, caller, known)
        return sorted({caller.name for caller in callers if caller.has_spec()})


def _check_impl(impl: pluggy.HookImpl, caller: pluggy.HookCaller, known: list[str]) -> None:
    if impl.wrapper or impl.hookwrapper:
        raise pluggy.PluginValidationError(
            impl.plugin, f"{caller.name} is a hook wrapper; plugins implement hooks, not wrap them"
        )
    if not caller.has_spec() and not impl.optionalhook:
        near = near_match(caller.name, known)
        hint = f"; did you mean {near!r}?" if near else f"; hooks are {', '.join(known)}"
        raise pluggy.PluginValidationError(impl.plugin, f"unknown hook {caller.name!r}{hint}")
