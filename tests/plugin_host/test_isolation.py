"""Case P01: a third party's fault is visible but never fatal. Real distributions, real imports."""

from __future__ import annotations

import sys

import pytest

from pegainfer_core.plugin import HostSettings, PluginFault, PluginHost, PluginRecord, PluginState

from .plugin_site import PluginSite

OK = """
@hookimpl
def model_families():
    return [Family("new-arch", "new_arch")]
"""

BUILT_IN = {"qwen3", "qwen35", "dsv2lite", "kimik2"}


def record(host: PluginHost, name: str) -> PluginRecord:
    return next(r for r in host.records if r.name == name)


def warnings_about(host: PluginHost, word: str) -> list[str]:
    return [warning for warning in host.warnings if word in warning]


def test_sound_plugins_load_beside_broken_ones(site: PluginSite) -> None:
    site.install("ok", OK)
    site.install("imp", "import a_module_that_is_not_there\n")
    host = PluginHost.load()
    assert set(host.families) >= BUILT_IN | {"new-arch"}
    assert record(host, "ok").state is PluginState.LOADED
    assert record(host, "ok").location == str(site.folder / "site_ok.py")


def test_a_failing_import_gives_one_warning_with_name_package_and_cause(site: PluginSite) -> None:
    site.install("imp", "import a_module_that_is_not_there\n", version="2.1")
    host = PluginHost.load()
    (warning,) = warnings_about(host, "'imp'")
    assert "'imp' (package dist-imp 2.1)" in warning
    assert "ModuleNotFoundError: No module named 'a_module_that_is_not_there'" in warning
    failed = record(host, "imp")
    assert failed.state is PluginState.FAILED
    assert "site_imp.py" in failed.traceback


def test_a_plugin_that_exits_at_import_does_not_end_the_program(site: PluginSite) -> None:
    site.install("leaver", "raise SystemExit(3)\n", with_family=False)
    assert record(PluginHost.load(), "leaver").state is PluginState.FAILED


def test_a_plugin_that_raises_halfway_leaves_nothing_behind(site: PluginSite) -> None:
    site.install(
        "reg",
        """
        @hookimpl
        def model_families():
            yield Family("first-of-two", "first")
            raise RuntimeError("the second one is broken")

        @hookimpl
        def tool_parsers():
            return {"left-behind": object}
        """,
    )
    host = PluginHost.load()
    (warning,) = warnings_about(host, "reg")
    assert "the second one is broken" in warning
    assert "first-of-two" not in host.families
    assert "left-behind" not in host.hooks.tool_parsers().names
    assert record(host, "reg").families == record(host, "reg").hooks == []


def test_two_plugins_with_one_family_id_have_a_fixed_winner_and_name_both(site: PluginSite) -> None:
    source = """
    @hookimpl
    def model_families():
        return [Family("twin", "twin"), Family("{0}-extra", "{0}")]
    """
    site.install("dup2", source.format("dup2"), dist="a-dist")
    site.install("dup1", source.format("dup1"), dist="z-dist")
    host = PluginHost.load()
    assert host.families["twin"].plugin.name == "dup1"
    (warning,) = warnings_about(host, "twin")
    assert "a-dist" in warning and "z-dist" in warning
    assert record(host, "dup2").state is PluginState.FAILED
    assert "dup2-extra" not in host.families


def test_two_distributions_with_one_plugin_name(site: PluginSite) -> None:
    site.install("same", OK, dist="a-dist", module="site_same_a")
    site.install("same", OK, dist="b-dist", module="site_same_b")
    host = PluginHost.load()
    assert host.families["new-arch"].plugin.dist == "a-dist"
    (warning,) = warnings_about(host, "same name")
    assert "a-dist" in warning and "b-dist" in warning
    states = {r.dist: r.state for r in host.records if r.name == "same"}
    assert states == {"a-dist": PluginState.LOADED, "b-dist": PluginState.FAILED}


def test_the_same_plugin_object_twice_is_silent(site: PluginSite) -> None:
    module = site.install("once", OK)
    site.write_metadata("another-dist", {"twice": module})
    host = PluginHost.load()
    assert host.families["new-arch"].plugin.name == "once"
    assert warnings_about(host, "twice") == warnings_about(host, "once") == []


def test_one_entry_point_listed_twice_is_silent(site: PluginSite) -> None:
    module = site.install("once", OK, dist="first-dist")
    site.write_entry_points(
        "listed-twice", f"[pegainfer.plugins]\nagain = {module}\nagain = {module}\n"
    )
    assert warnings_about(PluginHost.load(), "again") == []


def test_a_plugin_cannot_replace_a_first_party_family(site: PluginSite) -> None:
    site.install(
        "a-shadow",
        """
        @hookimpl
        def model_families():
            return [Family("qwen3", "qwen3")]
        """,
        module="site_shadow",
    )
    host = PluginHost.load()
    assert host.families["qwen3"].plugin.dist == "pegainfer-qwen3"
    (warning,) = warnings_about(host, "a-shadow")
    assert "dist-a-shadow" in warning and "pegainfer-qwen3" in warning


def test_the_allow_list_is_applied_before_import(site: PluginSite) -> None:
    site.install("ok", OK)
    module = site.install("slow", OK)
    host = PluginHost.load(HostSettings(allowed=frozenset({"ok"})))
    assert list(host.families) == ["new-arch"]
    assert record(host, "slow").state is PluginState.BLOCKED
    assert module not in sys.modules
    assert host.warnings == []


def test_an_allowed_plugin_that_is_not_installed_is_warned_of(site: PluginSite) -> None:
    site.install("ghosts", OK)
    host = PluginHost.load(HostSettings(allowed=frozenset({"ghost"})))
    (warning,) = host.warnings
    assert "'ghost'" in warning and "did you mean 'ghosts'" in warning


def test_an_empty_allow_list_loads_nothing(
    site: PluginSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.install("ok", OK)
    monkeypatch.setenv("PEGAINFER_PLUGINS", "")
    host = PluginHost.load()
    assert dict(host.families) == {} and host.warnings == []
    assert {r.state for r in host.records} == {PluginState.BLOCKED}


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("imp", "import a_module_that_is_not_there\n"),
        ("shadow", OK.replace('"new-arch"', '"qwen3"')),
        ("old", OK.replace("@hook", '__pegainfer_api__ = "0.9"\n@hook', 1)),
    ],
)
def test_strict_turns_any_failure_into_a_stop(site: PluginSite, name: str, source: str) -> None:
    site.install(name, source)
    with pytest.raises(PluginFault, match=name):
        PluginHost.load(HostSettings(strict=True, allowed=frozenset({"qwen3", name})))


def test_strict_stops_at_an_unknown_allowed_name(site: PluginSite) -> None:
    with pytest.raises(PluginFault, match="ghost"):
        PluginHost.load(HostSettings(strict=True, allowed=frozenset({"ghost"})))


@pytest.mark.parametrize(
    ("declared", "advice"),
    [
        ('"1.9"', "pip install --upgrade pegainfer"),
        ('"2.0"', "pip install --upgrade pegainfer"),
        ('"0.9"', "pip install --upgrade dist-old"),
        ('"one"', "expected a version"),
        ("None", "declares no __pegainfer_api__"),
    ],
)
def test_an_incompatible_api_is_said_before_any_signature_error(
    site: PluginSite, declared: str, advice: str
) -> None:
    site.install(
        "old",
        f"""
        __pegainfer_api__ = {declared}

        @hookimpl
        def model_families(an_argument_of_the_future):
            return []
        """,
    )
    host = PluginHost.load()
    old = record(host, "old")
    assert old.state is PluginState.INCOMPATIBLE
    assert advice in old.error
    assert len(warnings_about(host, "'old'")) == 1


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("@hookimpl\ndef model_familys():\n    return []\n", "did you mean 'model_families'"),
        ("@hookimpl\ndef model_families(colour):\n    return []\n", "colour"),
        ("@hookimpl(wrapper=True)\ndef model_families():\n    return (yield)\n", "wrapper"),
        ("@hookimpl\ndef model_families():\n    return None\n", "expected a list"),
        ("@hookimpl\ndef model_families():\n    return [object()]\n", "lacks id"),
        ("@hookimpl\ndef model_families():\n    return [Family('')]\n", "the id ''"),
        (
            "class O(FamilyOptions):\n    x: dict[str, object] | set[int] = {}\n"
            "@hookimpl\ndef model_families():\n"
            "    f = Family('f')\n    f.options = O\n    return [f]\n",
            "options of 'f'",
        ),
        (
            "@hookimpl\ndef model_families():\n"
            "    f = Family('f')\n    f.options = dict\n    return [f]\n",
            "no FamilyOptions",
        ),
    ],
)
def test_what_does_not_fit_the_api_is_refused_by_name(
    site: PluginSite, source: str, cause: str
) -> None:
    site.install("misfit", source)
    host = PluginHost.load()
    misfit = record(host, "misfit")
    assert misfit.state is PluginState.FAILED
    assert cause in misfit.error


def test_optional_hooks_of_other_versions_are_allowed(site: PluginSite) -> None:
    site.install("newer", OK + "\n@hookimpl(optionalhook=True)\ndef of_the_future():\n    pass\n")
    assert record(PluginHost.load(), "newer").state is PluginState.LOADED


def test_an_entry_point_may_name_an_object(site: PluginSite) -> None:
    module = site.install(
        "object",
        """
        class Plugin:
            __pegainfer_api__ = "1.0"

            @hookimpl
            def model_families(self):
                return [Family("by-object", "x")]

        plugin = Plugin()
        """,
        dist="unused",
    )
    site.write_metadata("object-dist", {"by-attribute": f"{module}:plugin"})
    host = PluginHost.load()
    assert host.families["by-object"].plugin.entry_point == f"{module}:plugin"
