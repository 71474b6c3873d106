"""P01: a third party's broken plugin is seen by name and never keeps a model from being served.

Seen elsewhere: one broken plugin stops the server, or its failure is swallowed and shows up as an
unrelated error; plugins that are missing or there twice pass unseen. A running `pegainfer serve`
beside broken plugins is tested in `tests/cli`.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pegainfer_core import LLM
from pegainfer_core.cli.main import main
from pegainfer_core.plugin import PluginFault, PluginHost, PluginState, SelectionError
from pegainfer_core.testing.tiny import edit_config
from tests.cases.answers import greedy, run
from tests.cases.conftest import F3
from tests.hf import cases, golden
from tests.plugin_host.plugin_site import PluginSite

#: A real family under another name: what it serves is served.
OK = """
from pegainfer_core.plugin import Claim, Rejection, hookimpl
from pegainfer_qwen3.plugin import Qwen3Family

__pegainfer_api__ = "1.0"


class NewArch(Qwen3Family):
    id = "new-arch"

    def probe(self, config, model_dir):
        if config.get("model_type") == "new_arch":
            return Claim("made for tests")
        return Rejection("not of type new_arch")


@hookimpl
def model_families():
    return [NewArch()]
"""
IMP = "import a_module_that_is_not_there\n"
REG = """
@hookimpl
def model_families():
    yield Family("reg-one", "reg_one")
    raise RuntimeError("the second of two names is broken")
"""
DUP = """
@hookimpl
def model_families():
    return [Family("twin", "twin"), Family("{0}-own", "{0}")]
"""
SHADOW = """
@hookimpl
def model_families():
    return [Family("qwen3", "qwen3")]
"""
NAMES = ("ok", "imp", "reg", "dup1", "dup2", "shadow")
FAULTS = {
    "imp": "No module named 'a_module_that_is_not_there'",
    "reg": "the second of two names is broken",
    "dup2": "'twin', which plugin 'dup1' (package dist-dup1 1.0) offers already",
    "shadow": "'qwen3', which plugin 'qwen3' (package pegainfer-qwen3",
}
PROMPT = golden.load(F3).prompts[5]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PluginSite]:
    """All of the case's plugins installed beside ours, and an allow-list that names a ghost."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    made = PluginSite(folder)
    made.install("ok", OK, with_family=False)
    made.install("imp", IMP, with_family=False)
    made.install("reg", REG)
    first = made.install("dup1", DUP.format("dup1"))
    made.install("dup2", DUP.format("dup2"))
    made.write_metadata("dist-again", {"dup1-again": first})
    made.install("shadow", SHADOW)
    allow(monkeypatch, "qwen3", "server", *NAMES, "dup1-again", "ghost")
    monkeypatch.delenv("PEGAINFER_STRICT_PLUGINS", raising=False)
    yield made
    for module in made.modules:
        sys.modules.pop(module, None)


def allow(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setenv("PEGAINFER_PLUGINS", ",".join(names))


def answer(folder: Path) -> list[int]:
    with LLM(folder, backend="numpy") as llm:
        return run(llm, [PROMPT.prompt.tolist()], greedy(64))[0].token_ids


def of_type(model_type: str, folder: Path) -> Path:
    cases.build(F3, folder)
    edit_config(folder, lambda config: config.update(model_type=model_type))
    return folder


def test_built_ins_and_sound_ones_serve(
    site: PluginSite, f3: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert answer(f3) == PROMPT.greedy.tolist()
    warnings = [record.message for record in caplog.records]
    assert len(warnings) == len(FAULTS) + 1
    for name, cause in FAULTS.items():
        (warning,) = [line for line in warnings if f"'{name}' (package dist-{name} 1.0)" in line]
        assert cause in warning and "\n" not in warning
    (ghost,) = [line for line in warnings if "'ghost'" in line]
    assert "not installed" in ghost
    assert answer(of_type("new_arch", tmp_path / "new")) == PROMPT.greedy.tolist()


def test_what_is_left_of_each(site: PluginSite) -> None:
    host = PluginHost.load()
    states = {record.name: record.state for record in host.records if record.name in NAMES}
    assert states == {
        "ok": PluginState.LOADED,
        "imp": PluginState.FAILED,
        "reg": PluginState.FAILED,
        "dup1": PluginState.LOADED,
        "dup2": PluginState.FAILED,
        "shadow": PluginState.FAILED,
    }
    families = {name: offered.plugin.dist for name, offered in host.families.items()}
    assert families["qwen3"] == "pegainfer-qwen3"
    # A failed plugin leaves nothing behind, not even what it had registered before.
    assert {name for name in families if name != "qwen3"} == {"new-arch", "twin", "dup1-own"}
    assert families["twin"] == "dist-dup1"
    assert not any("plugin 'dup1" in line and "dup2" not in line for line in host.warnings), (
        "one object under two names is no fault"
    )


def test_an_arch_of_a_broken_plugin_says_so(
    site: PluginSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = of_type("imp_arch", tmp_path / "m")
    with pytest.raises(SelectionError) as caught:
        LLM(folder)
    message = str(caught.value)
    assert "model_type 'imp_arch'" in message
    assert "plugin 'imp' (package dist-imp 1.0) failed: its import raised " in message
    assert FAULTS["imp"] in message
    # The command line, with what it prints and returns.
    assert main(["serve", str(folder), "--port", "0"]) == 2
    printed = capsys.readouterr().err
    assert "plugin 'imp' (package dist-imp 1.0) failed" in printed.partition("error:")[2]
    assert "Traceback" not in printed


def test_the_list_of_plugins(site: PluginSite, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    shown = {plugin["name"]: plugin for plugin in report["plugins"]}
    for name, cause in FAULTS.items():
        assert shown[name]["state"] == "failed"
        assert cause in shown[name]["error"]
        assert shown[name]["dist"] == f"dist-{name}"
        assert shown[name]["families"] == []
    assert shown["ok"]["families"] == ["new-arch"]
    assert any("'ghost'" in warning for warning in report["warnings"])
    assert main(["plugins"]) == 0
    text = capsys.readouterr()
    assert FAULTS["imp"] in text.out and "'ghost'" in text.err


def test_an_empty_list_loads_none(
    site: PluginSite, f3: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch)
    host = PluginHost.load()
    assert dict(host.families) == {} and host.warnings == []
    assert {record.state for record in host.records} == {PluginState.BLOCKED}
    assert "site_ok" not in sys.modules
    with pytest.raises(SelectionError, match="not loaded, since PEGAINFER_PLUGINS leaves them out"):
        LLM(f3)


@pytest.mark.parametrize("name", [*FAULTS, "ghost"])
def test_strict_turns_a_failure_into_a_stop(
    name: str,
    site: PluginSite,
    f3: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PEGAINFER_STRICT_PLUGINS", "1")
    allow(monkeypatch, "qwen3", "ok", "dup1", name)
    with pytest.raises(PluginFault, match=f"'{name}'"):
        LLM(f3)
    assert main(["plugins"]) == 2
    assert f"'{name}'" in capsys.readouterr().err
    allow(monkeypatch, "qwen3", "ok", "dup1", "dup1-again")
    assert answer(f3) == PROMPT.greedy.tolist()
