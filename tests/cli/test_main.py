from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pegainfer_core import __version__

from ..plugin_host.plugin_site import PluginSite
from .conftest import Run

COMMANDS = """
import msgspec
from typing import Annotated
from msgspec import Meta
from pegainfer_core.contract import EngineError
from pegainfer_core.plugin import CommandFault
from pegainfer_core.weights import ConfigError


class Options(msgspec.Struct, frozen=True):
    kind: Annotated[str, Meta(extra={"positional": True})] = "none"


def work(options):
    print("working on", options.kind)
    if options.kind == "fault":
        raise CommandFault("--port 80 is in use; choose another")
    if options.kind == "config":
        raise ConfigError("shard 2 is truncated; fetch it again")
    if options.kind == "file":
        open("/nowhere/tokenizer.json")
    if options.kind == "engine":
        raise EngineError("the engine died")
    if options.kind == "bug":
        raise ValueError("a bug")
    if options.kind == "interrupt":
        raise KeyboardInterrupt
    return 7


@hookimpl
def register_commands(cli):
    cli.add_command("work", summary="does work", options=Options, run=work)
    cli.add_command("work twice", summary="does more", options=Options, run=lambda o: 8)
"""


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"pegainfer {__version__}\n", "")


def test_help_lists_core_and_plugin_commands(run: Run, site: PluginSite) -> None:
    site.install("commands", COMMANDS)
    for words in ([], ["--help"], ["-h"]):
        done = run(*words, plugins="commands")
        assert done.code == 0
        for name in ("plugins", "probe", "doctor", "dummy-weights", "work", "work twice"):
            assert re.search(rf"^  {name} ", done.out, re.MULTILINE)
        assert "pegainfer-server" in done.out


def test_a_plugin_command_runs_and_gives_the_exit_code(run: Run, site: PluginSite) -> None:
    site.install("commands", COMMANDS)
    assert run("work", "paper", plugins="commands") == (7, "working on paper\n", "")
    assert run("work", "twice").code == 8
    assert "does more" in run("work", "twice", "--help").out


@pytest.mark.parametrize(
    ("kind", "code", "line"),
    [
        ("fault", 2, "pegainfer: error: --port 80 is in use; choose another\n"),
        ("config", 2, "pegainfer: error: shard 2 is truncated; fetch it again\n"),
        ("file", 2, "pegainfer: error: /nowhere/tokenizer.json: No such file or directory\n"),
        ("engine", 1, "pegainfer: error: the engine died\n"),
        ("interrupt", 130, ""),
    ],
)
def test_faults_are_one_line_and_an_exit_code(
    run: Run, site: PluginSite, kind: str, code: int, line: str
) -> None:
    site.install("commands", COMMANDS)
    done = run("work", kind, plugins="commands")
    assert (done.code, done.err) == (code, line)


def test_debug_adds_the_traceback(run: Run, site: PluginSite) -> None:
    site.install("commands", COMMANDS)
    for words in (["--debug", "work", "fault"], ["work", "fault", "--debug"]):
        done = run(*words, plugins="commands")
        assert done.code == 2
        assert done.err.startswith("Traceback") and "in work" in done.err
        assert done.err.endswith("pegainfer: error: --port 80 is in use; choose another\n")


def test_a_bug_shows_its_traceback(run: Run, site: PluginSite) -> None:
    site.install("commands", COMMANDS)
    done = run("work", "bug", plugins="commands")
    assert done.code == 1 and "ValueError: a bug" in done.err


def test_a_plugin_that_fails_to_register_adds_nothing(run: Run, site: PluginSite) -> None:
    site.install("commands", COMMANDS)
    site.install(
        "greedy",
        COMMANDS.replace('"work"', '"extra"').replace('"work twice"', '"plugins"')
        + "\n@hookimpl\ndef model_families():\n    return [Family('greedy-family', 'g')]\n",
    )
    done = run("extra", plugins="commands,greedy")
    assert done.code == 2
    assert "'greedy' (package dist-greedy 1.0) failed: register_commands raised" in done.err
    assert "there is a command 'plugins' already" in done.err
    assert "unknown command 'extra'" in done.err
    listed = json.loads(run("plugins", "--json").out)["plugins"]
    assert {p["name"]: p["state"] for p in listed} == {"commands": "loaded", "greedy": "failed"}
    assert all("greedy-family" not in p["families"] for p in listed)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["prob", "x"], "unknown command 'prob'; did you mean 'probe'?"),
        (["frobnicate"], "unknown command 'frobnicate'; see pegainfer --help"),
        (["--vresion"], "unknown flag '--vresion'; see pegainfer --help"),
        (["plugins", "--jsno"], "unknown flag --jsno; did you mean --json?"),
        (["probe"], "MODEL (or --model) is missing"),
    ],
)
def test_usage_faults(run: Run, site: PluginSite, words: list[str], line: str) -> None:
    done = run(*words, plugins="")
    assert done.code == 2
    assert line in done.err and done.err.count("\n") == 1


def test_warnings_come_first_and_once(run: Run, site: PluginSite) -> None:
    site.install("imp", "import a_module_that_is_not_there\n")
    site.install("commands", COMMANDS)
    done = run("work", plugins="imp,commands,ghost")
    ghost, imp = done.err.splitlines()
    assert ghost.startswith("pegainfer: warning: PEGAINFER_PLUGINS names 'ghost'")
    assert imp.startswith("pegainfer: warning: plugin 'imp' (package dist-imp 1.0) failed")
    assert done.code == 7


def test_strict_stops_with_the_cause(
    run: Run, site: PluginSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.install("imp", "import a_module_that_is_not_there\n")
    monkeypatch.setenv("PEGAINFER_STRICT_PLUGINS", "1")
    done = run("plugins", plugins="imp")
    assert done.code == 2
    assert done.err.startswith("pegainfer: error: plugin 'imp' (package dist-imp 1.0) failed")


def test_plugins_lists_states_and_errors(run: Run, site: PluginSite) -> None:
    site.install("imp", "import a_module_that_is_not_there\n")
    site.install("commands", COMMANDS)
    done = run("plugins", plugins="imp,commands,qwen3,ghost")
    rows = {line.split()[0]: line.split() for line in done.out.splitlines() if line.strip()}
    assert rows["qwen3"][1:5] == ["pegainfer-qwen3", "0.1.0", "1.0", "loaded"]
    assert rows["commands"][-1] == "register_commands"
    assert "failed" in rows["imp"]
    assert "kimik2" not in rows and "--all shows them" in done.out
    assert "a_module_that_is_not_there" in done.out
    assert done.err == f"pegainfer: warning: {_ghost_warning(done.err)}\n"
    everything = run("plugins", "--all").out
    assert "kimik2" in everything and "blocked" in everything


def _ghost_warning(err: str) -> str:
    (warning,) = re.findall(r"warning: (PEGAINFER_PLUGINS names 'ghost'.*)", err)
    return str(warning)


def test_plugins_json_is_the_whole_record(run: Run, site: PluginSite) -> None:
    site.install("imp", "import a_module_that_is_not_there\n")
    report = json.loads(run("plugins", "--json", plugins="imp").out)
    (imp,) = report["plugins"]
    assert imp["state"] == "failed" and "Traceback" in imp["traceback"]
    assert imp["entry_point"] == "site_imp" and imp["location"] == str(site.folder)
    assert len(report["warnings"]) == 1


def test_plugins_with_nothing_installed(run: Run, site: PluginSite) -> None:
    assert "no plugins" in run("plugins", plugins="").out


def write_config(folder: Path, **config: object) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def test_probe_says_who_and_why(run: Run, site: PluginSite, tmp_path: Path) -> None:
    model = write_config(tmp_path / "m", model_type="qwen3", architectures=["Qwen3ForCausalLM"])
    done = run("probe", model, plugins="qwen3,kimik2")
    assert done.code == 0
    assert f"{model}: served by qwen3" in done.out
    assert "kimik2 (package pegainfer-kimik2): no: model_type is 'qwen3'" in done.out
    decision = json.loads(run("probe", model, "--json").out)
    assert decision["family"] == "qwen3" and decision["architectures"] == ["Qwen3ForCausalLM"]


def test_probe_without_a_match(run: Run, site: PluginSite, tmp_path: Path) -> None:
    model = write_config(tmp_path / "m", model_type="zzz")
    done = run("probe", model, plugins="qwen3")
    assert done.code == 2 and done.out == ""
    assert done.err.startswith("pegainfer: error: no installed plugin serves")
    decision = json.loads(run("probe", model, "--json").out)
    assert decision["family"] is None and "zzz" in decision["error"]


def test_probe_with_a_family(run: Run, site: PluginSite, tmp_path: Path) -> None:
    model = write_config(tmp_path / "m", model_type="zzz")
    decision = json.loads(run("probe", model, "--json", "--family", "qwen3", plugins="qwen3").out)
    assert decision["family"] == "qwen3" and not decision["error"]
    assert run("probe", model, "--family", "qwen4").code == 2


def test_probe_of_an_unreadable_path(run: Run, site: PluginSite, tmp_path: Path) -> None:
    done = run("probe", str(tmp_path / "nowhere"), plugins="qwen3")
    assert done.code == 2 and "nowhere" in done.err and done.err.count("\n") == 1
    (tmp_path / "config.json").write_text("{")
    done = run("probe", str(tmp_path))
    assert done.code == 2 and "config.json" in done.err and done.err.count("\n") == 1
