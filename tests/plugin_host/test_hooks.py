"""Every hook: what it gets, what it gives, and what a failing implementation means."""

from __future__ import annotations

import importlib
import inspect
import logging
from typing import cast

import pytest

from pegainfer_core.contract import EngineHandle, ServePlan
from pegainfer_core.plugin import (
    HostSettings,
    ModelFamily,
    PluginFault,
    PluginHost,
    RequestRecord,
    hookspecs,
)
from pegainfer_core.plugin.api import PROJECT
from pegainfer_core.plugin.hook_calls import MUTE_AFTER_FAILURES, HookCalls

from .plugin_site import PluginSite

ENGINE = cast(EngineHandle, object())
RECORD = RequestRecord(
    request_id=1,
    external_id="cmpl-1",
    model="m",
    family="echo",
    finish_reason="stop",
    arrival_unix_s=1.0,
    finished_s=0.5,
)
#: A plugin that notes its calls in `calls`, a list at its module's top.
NOTES = "calls = []\n"


def load(site: PluginSite, *names: str, trace: bool = False) -> PluginHost:
    return PluginHost.load(HostSettings(allowed=frozenset(names), trace=trace))


def calls(name: str) -> list[object]:
    return cast("list[object]", importlib.import_module(f"site_{name}").calls)


def hook_names() -> list[str]:
    return [name for name, value in vars(hookspecs).items() if hasattr(value, f"{PROJECT}_spec")]


def test_every_hook_has_a_one_line_docstring_a_caller_and_a_test_here() -> None:
    assert len(hook_names()) == 9
    for name in hook_names():
        doc = inspect.getdoc(getattr(hookspecs, name))
        assert doc and "\n" not in doc
        assert hasattr(HookCalls, name)
        assert f"test_hook_{name}" in globals()


def test_hook_model_families(site: PluginSite) -> None:
    site.install("many", "@hookimpl\ndef model_families():\n    yield Family('a')\n")
    assert list(load(site, "many").families) == ["a"]


def test_hook_register_commands(site: PluginSite) -> None:
    site.install(
        "commands", NOTES + "@hookimpl\ndef register_commands(cli):\n    calls.append(cli)\n"
    )
    host = load(site, "commands")
    cli = cast("object", object())
    host.hooks.register_commands("commands", cli)  # type: ignore[arg-type]
    host.hooks.register_commands("another", cli)  # type: ignore[arg-type]
    assert calls("commands") == [cli]


def test_hook_kv_tiers(site: PluginSite) -> None:
    source = """
    class Tier:
        name = "{0}"

        def open(self, place):
            raise NotImplementedError

    @hookimpl
    def kv_tiers():
        return [Tier()]
    """
    site.install("remote", source.format("remote"))
    site.install("twin_a", source.format("twin"))
    site.install("twin_b", source.format("twin"))
    offers = load(site, "remote", "twin_a", "twin_b").hooks.kv_tiers()
    assert offers.names == ["disk", "remote", "twin"]
    remote, disk = offers.choose("remote"), offers.choose("disk")
    assert (remote.factory.name, remote.plugin.entry_point) == ("remote", "site_remote")
    assert disk.plugin.entry_point == "pegainfer_core.plugin.core_plugin"
    with pytest.raises(PluginFault, match="dist-twin_a and dist-twin_b"):
        offers.choose("twin")
    with pytest.raises(PluginFault, match=r"no plugin offers.*offered: disk, remote, twin"):
        offers.choose("other")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("name = 'host'\n    open = print", "name 'host'; expected a word that is not host"),
        ("name = 'a,b'\n    open = print", "name 'a,b'; expected a word"),
        ("name = 5\n    open = print", "name 5; expected a word"),
        ("name = 'shelf'", "tier 'shelf', which has no method open"),
    ],
)
def test_a_plugin_with_a_misshapen_tier_is_left_out(
    site: PluginSite, body: str, problem: str
) -> None:
    source = f"class Tier:\n    {body}\n\n@hookimpl\ndef kv_tiers():\n    return [Tier()]\n"
    site.install("misshapen", source)
    host = load(site, "misshapen")
    assert host.hooks.kv_tiers().names == ["disk"]
    (warning,) = host.warnings
    assert "dist-misshapen" in warning and problem in warning


def test_a_second_disk_tier_is_an_error_for_who_asks_for_it(site: PluginSite) -> None:
    source = "class Tier:\n    name = 'disk'\n    open = print\n\n"
    site.install("other", source + "@hookimpl\ndef kv_tiers():\n    return [Tier()]\n")
    with pytest.raises(PluginFault, match="'disk' is offered by dist-other and pegainfer"):
        load(site, "other").hooks.kv_tiers().choose("disk")


@pytest.mark.parametrize("hook", ["tool_parsers", "reasoning_parsers"])
def test_parser_hooks(site: PluginSite, hook: str) -> None:
    site.install("sound", f"@hookimpl\ndef {hook}():\n    return {{'json': dict}}\n")
    site.install("broken", f"@hookimpl\ndef {hook}():\n    raise ValueError('no parser')\n")
    site.install("misshapen", f"@hookimpl\ndef {hook}():\n    return ['json']\n")
    host = load(site, "sound", "broken", "misshapen")
    offers = getattr(host.hooks, hook)()
    assert offers.choose("json") is dict
    text = "\n".join(host.warnings)
    assert "dist-broken" in text and "no parser" in text
    assert "dist-misshapen" in text and "expected a dict" in text


test_hook_tool_parsers = test_hook_reasoning_parsers = test_parser_hooks


def test_hook_server_routes(site: PluginSite) -> None:
    site.install(
        "routes", "@hookimpl\ndef server_routes(app_config):\n    return [app_config, 1]\n"
    )
    site.install("broken", "@hookimpl\ndef server_routes():\n    yield 1 / 0\n")
    host = load(site, "routes", "broken")
    config = object()
    assert host.hooks.server_routes(config) == [("routes", [config, 1])]
    (warning,) = host.warnings
    assert "dist-broken" in warning and "ZeroDivisionError" in warning


def test_hook_engine_ready(site: PluginSite) -> None:
    site.install(
        "watcher",
        NOTES + "@hookimpl\ndef engine_ready(engine, plan):\n    calls.append((engine, plan))\n",
    )
    family, plan = cast(ModelFamily, object()), cast(ServePlan, object())
    load(site, "watcher").hooks.engine_ready(ENGINE, family, plan)
    assert calls("watcher") == [(ENGINE, plan)]
    site.install("refuser", "@hookimpl\ndef engine_ready():\n    raise OSError('no licence')\n")
    with pytest.raises(PluginFault, match=r"dist-refuser.*no licence"):
        load(site, "refuser").hooks.engine_ready(ENGINE, family, plan)


def test_hook_engine_stopping(site: PluginSite, caplog: pytest.LogCaptureFixture) -> None:
    order: list[str] = []
    for name in ("first", "second", "third"):
        site.install(
            name,
            f"""
            order = None

            @hookimpl
            def engine_ready():
                order.append("{name} ready")

            @hookimpl
            def engine_stopping(engine):
                order.append("{name} stopping")
                if "{name}" == "second":
                    raise RuntimeError("cannot let go")
            """,
        )
    host = load(site, "first", "second", "third")
    for name in ("first", "second", "third"):
        importlib.import_module(f"site_{name}").order = order
    host.hooks.engine_ready(ENGINE, cast(ModelFamily, None), cast(ServePlan, None))
    with caplog.at_level(logging.ERROR):
        host.hooks.engine_stopping(ENGINE)
    assert order[:3] == ["first ready", "second ready", "third ready"]
    assert order[3:] == ["third stopping", "second stopping", "first stopping"]
    assert "dist-second" in caplog.text and "cannot let go" in caplog.text


def test_hook_request_finished(site: PluginSite, caplog: pytest.LogCaptureFixture) -> None:
    source = "@hookimpl\ndef request_finished(record):\n    calls.append(record)\n"
    site.install("sound", NOTES + source)
    site.install("broken", NOTES + source + "    raise ValueError('full disk')\n")
    host = load(site, "sound", "broken")
    with caplog.at_level(logging.ERROR):
        for _ in range(MUTE_AFTER_FAILURES + 3):
            host.hooks.request_finished(RECORD)
    assert calls("sound") == [RECORD] * (MUTE_AFTER_FAILURES + 3)
    assert calls("broken") == [RECORD] * MUTE_AFTER_FAILURES
    assert caplog.text.count("it is no longer called") == 1


def test_order_of_implementations(site: PluginSite) -> None:
    for name, option in (("a", ""), ("b", "(trylast=True)"), ("c", "(tryfirst=True)"), ("d", "")):
        site.install(name, f"@hookimpl{option}\ndef server_routes():\n    return []\n")
    routes = load(site, "a", "b", "c", "d").hooks.server_routes(None)
    assert [plugin for plugin, _ in routes] == ["c", "a", "d", "b"]


def test_trace_prints_calls_results_and_errors(
    site: PluginSite, capsys: pytest.CaptureFixture[str]
) -> None:
    site.install("ok", "@hookimpl\ndef model_families():\n    return []\n")
    site.install("broken", "@hookimpl\ndef model_families():\n    raise KeyError('x')\n")
    load(site, "ok", "broken", trace=True)
    err = capsys.readouterr().err
    assert "plugin trace: model_families -> ok: []" in err
    assert "plugin trace: model_families -> broken: raised KeyError('x')" in err


@pytest.mark.parametrize(
    ("text", "is_on"), [("1", True), ("yes", True), ("0", False), ("", False), ("off", False)]
)
def test_settings_from_the_environment(text: str, is_on: bool) -> None:
    environ = {"PEGAINFER_STRICT_PLUGINS": text, "PEGAINFER_TRACE_PLUGINS": text}
    assert HostSettings.from_environ(environ) == HostSettings(strict=is_on, trace=is_on)
    names = HostSettings.from_environ({"PEGAINFER_PLUGINS": " a, b,"})
    assert names.allowed == frozenset({"a", "b"})


@pytest.mark.parametrize("hook", ["tool_parsers", "reasoning_parsers"])
@pytest.mark.parametrize("offer", ["{'json': 3}", "{'none': dict}", "{'': dict}", "{3: dict}"])
def test_parsers_that_nobody_could_choose_or_call(site: PluginSite, hook: str, offer: str) -> None:
    site.install("odd", f"@hookimpl\ndef {hook}():\n    return {offer}\n")
    host = load(site, "odd")
    assert set(getattr(host.hooks, hook)().names) <= set(getattr(load(site).hooks, hook)().names)
    (warning,) = host.warnings
    assert "dist-odd" in warning and "a name that is not none" in warning


def test_core_s_own_parsers_are_offered_like_others(site: PluginSite) -> None:
    site.install("rival", "@hookimpl\ndef tool_parsers():\n    return {'hermes': dict}\n")
    offers = load(site, "rival").hooks.tool_parsers()
    with pytest.raises(PluginFault, match="'hermes' is offered by dist-rival and pegainfer"):
        offers.choose("hermes")
    assert callable(offers.choose("kimi_k2"))
