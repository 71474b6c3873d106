from __future__ import annotations

import json
from pathlib import Path

import pytest

from pegainfer_core.cli.command_table import CommandTable
from pegainfer_core.plugin import HostSettings, PluginHost, SelectionError, decide, select_family
from pegainfer_core.plugin.install_hint import install_command
from pegainfer_core.plugin.known import KNOWN_PACKAGES, package_for_family

from .plugin_site import PluginSite

ROOT = Path(__file__).parents[2]
MODEL = Path("/models/m")

TWO = """
@hookimpl
def model_families():
    return [Family("{0}", {1})]
"""


@pytest.fixture
def host(site: PluginSite) -> PluginHost:
    site.install("one", TWO.format("one", "'a', 'both'"))
    site.install("two", TWO.format("two", "'b', 'both'"))
    site.install("imp", "import a_module_that_is_not_there\n")
    return PluginHost.load(HostSettings(allowed=frozenset({"one", "two", "imp"})))


def test_exactly_one_claim_wins(host: PluginHost) -> None:
    assert select_family(host, {"model_type": "b"}, MODEL).family.id == "two"
    decision = decide(host, {"model_type": "b", "architectures": ["BForCausalLM"]}, MODEL)
    assert decision.family == "two" and not decision.error and not decision.hint
    assert decision.architectures == ["BForCausalLM"]
    assert [(v.family, v.claims, v.reason) for v in decision.verdicts] == [
        ("one", False, "only a, both"),
        ("two", True, "made for tests"),
    ]


def test_two_claims_are_an_error_that_names_both_and_the_flag(host: PluginHost) -> None:
    with pytest.raises(SelectionError) as fault:
        select_family(host, {"model_type": "both"}, MODEL)
    message = str(fault.value)
    assert "one (package dist-one)" in message and "two (package dist-two)" in message
    assert "--family one" in message and "--family two" in message
    assert select_family(host, {"model_type": "both"}, MODEL, "two").family.id == "two"


def test_no_claim_lists_every_reason_and_every_broken_plugin(host: PluginHost) -> None:
    with pytest.raises(SelectionError) as fault:
        select_family(host, {"model_type": "c", "architectures": ["CForCausalLM"]}, MODEL)
    head, *details = str(fault.value).splitlines()
    assert "model_type 'c'" in head and "CForCausalLM" in head and "/models/m/config.json" in head
    assert "install" not in head.replace("installed", "")
    assert head.endswith("; no package of this project does")
    assert any("one (package dist-one): only a, both" in line for line in details)
    assert any("two (package dist-two): only b, both" in line for line in details)
    assert any("'imp'" in line and "a_module_that_is_not_there" in line for line in details)
    assert any("qwen3" in line and "PEGAINFER_PLUGINS" in line for line in details)


def test_a_config_without_model_type(host: PluginHost) -> None:
    assert "no model_type" in decide(host, {}, MODEL).error


def test_a_probe_that_raises_is_a_reason_not_an_end(site: PluginSite) -> None:
    site.install(
        "raiser",
        """
        class Raiser(Family):
            def probe(self, config, model_dir):
                return config["a_key_it_takes_for_granted"]

        @hookimpl
        def model_families():
            return [Raiser("raiser"), Family("sound", "x")]
        """,
    )
    host = PluginHost.load(HostSettings(allowed=frozenset({"raiser"})))
    decision = decide(host, {"model_type": "x"}, MODEL)
    assert decision.family == "sound"
    assert "KeyError" in decision.verdicts[0].reason
    odd = decide(host, {"a_key_it_takes_for_granted": "yes"}, MODEL)
    assert "expected a Claim or a Rejection" in odd.verdicts[0].reason


def test_a_family_that_recognises_but_cannot_serve_is_the_whole_message(site: PluginSite) -> None:
    site.install("other", TWO.format("other", "'z'"))
    host = PluginHost.load(HostSettings(allowed=frozenset({"other", "qwen3"})))
    config = {"model_type": "qwen3", "quantization_config": {"quant_method": "fp8"}}
    message = decide(host, config, MODEL).error
    assert "\n" not in message
    assert "qwen3 (package pegainfer-qwen3)" in message and "'fp8'" in message
    assert "other" not in message


def test_an_unknown_family_id(host: PluginHost) -> None:
    with pytest.raises(SelectionError, match=r"--family tow: .*did you mean two\?"):
        select_family(host, {}, MODEL, "tow")
    with pytest.raises(SelectionError, match="loaded are: one, two"):
        select_family(host, {}, MODEL, "xyz")


def host_without_first_party(monkeypatch: pytest.MonkeyPatch) -> PluginHost:
    monkeypatch.setattr("pegainfer_core.plugin.host.find_plugins", lambda: ([], []))
    host = PluginHost(HostSettings())
    host.load_plugins([])
    return host


def test_a_missing_first_party_plugin_is_hinted_at(monkeypatch: pytest.MonkeyPatch) -> None:
    host = host_without_first_party(monkeypatch)
    package = package_for_family("qwen35")
    assert package is not None
    decision = decide(host, {"model_type": "qwen3_5"}, MODEL)
    assert decision.hint == install_command(package)
    assert decision.hint in decision.error
    with pytest.raises(SelectionError) as fault:
        select_family(host, {}, MODEL, "qwen35")
    assert decision.hint in str(fault.value)
    assert "no model family is installed" in decide(host, {"model_type": "?"}, MODEL).error


def test_the_install_command_suits_the_way_core_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = package_for_family("qwen3")
    assert package is not None
    direct_url: list[str | None] = [None]

    class Installed:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return direct_url[0]

    monkeypatch.setattr("importlib.metadata.distribution", lambda name: Installed())
    assert install_command(package).endswith("-m pip install pegainfer-qwen3")
    direct_url[0] = json.dumps({"url": ROOT.as_uri(), "dir_info": {"editable": True}})
    assert install_command(package).endswith(f"-m pip install -e {ROOT}/plugins/pegainfer_qwen3")
    direct_url[0] = json.dumps({"url": "file:///gone%20away", "dir_info": {"editable": True}})
    assert install_command(package).endswith("-m pip install pegainfer-qwen3")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert install_command(package) == "uv pip install pegainfer-qwen3"


#: Model types of this field: the table must claim its own of them and no other.
MODEL_TYPES = (
    "qwen3 qwen3_moe qwen3_next qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text qwen3_5_vision "
    "qwen2 qwen2_moe qwen3_vl deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 kimi_k2 kimi_k25 "
    "kimi_k25_vision kimi_linear kimi_k3 glm4_moe glm_moe_dsa glm5_next gemma4 gemma4_text llama "
    "mistral mixtral phi3 gpt_oss olmo2 echo"
).split()


def test_the_hint_table_says_what_the_plugins_claim(site: PluginSite) -> None:
    folders = {path.name for path in (ROOT / "plugins").iterdir() if (path / "src").is_dir()}
    families = {package.folder.removeprefix("plugins/"): package for package in KNOWN_PACKAGES}
    assert folders == set(families) - {"server"}
    host = PluginHost.load()
    for name in folders:
        package = families[name]
        if package.commands:
            continue
        offered = host.families[package.family]
        assert offered.plugin.dist == package.dist
        claimed = [
            model_type
            for model_type in MODEL_TYPES
            if decide(host, {"model_type": model_type}, MODEL).family == package.family
        ]
        assert sorted(claimed) == sorted(package.model_types)
    for name, folder in (("server", "server"), ("bench", "plugins/pegainfer_bench")):
        (known,) = [package for package in KNOWN_PACKAGES if package.folder == folder]
        table = CommandTable()
        host.hooks.register_commands(name, table)
        assert [command.name for command in table.commands] == list(known.commands)
