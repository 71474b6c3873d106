from __future__ import annotations

import json
from pathlib import Path

import pytest

from pegainfer_core.contract import CoreOptions
from pegainfer_core.plugin import HostSettings, PluginFault, PluginHost, UserFault, prepare_launch
from pegainfer_core.weights import ConfigError

from .plugin_site import PluginSite

SOURCE = """
from typing import Annotated
from msgspec import Meta


class Options(FamilyOptions):
    speed: Annotated[int, Meta(ge=1)] = 1
    mode: str | None = None


class Flagged(Family):
    options = Options
    shared_options = frozenset({"max_model_len", "kv_offload"})


@hookimpl
def model_families():
    return [Flagged("flagged", "flagged")]
"""


@pytest.fixture
def host(site: PluginSite) -> PluginHost:
    site.install("flagged", SOURCE)
    return PluginHost.load(HostSettings(allowed=frozenset({"flagged"})))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "flagged"}))
    return folder


def test_a_prepared_launch_holds_all_a_worker_needs(
    host: PluginHost, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    launch = prepare_launch(
        host,
        "model",
        options=CoreOptions(max_model_len=32),
        family_options={"speed": 3},
        threads=2,
    )
    context = launch.context
    assert context.model_dir == str(model) and context.entry_point == "site_flagged"
    assert (context.family, context.options.max_model_len, context.threads) == ("flagged", 32, 2)
    assert context.family_options == {"speed": 3}
    assert launch.plan.max_model_len == 32
    assert launch.config == {"model_type": "flagged"}
    assert launch.plugin.dist == "dist-flagged"


def test_an_option_the_family_does_not_use_is_refused(host: PluginHost, model: Path) -> None:
    with pytest.raises(UserFault, match=r"--tp is not used by the model family flagged.*--max-mod"):
        prepare_launch(host, model, options=CoreOptions(tp=2))


def test_core_options_built_in_python_are_checked(host: PluginHost, model: Path) -> None:
    with pytest.raises(UserFault, match="max_num_seqs"):
        prepare_launch(host, model, options=CoreOptions(max_num_seqs=0))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"spede": 2}, "no option 'spede'; did you mean 'speed'"),
        ({"speed": 0}, "speed"),
        ({"mode": 5}, "mode"),
    ],
)
def test_family_options_are_checked(
    host: PluginHost, model: Path, options: dict[str, object], problem: str
) -> None:
    with pytest.raises(UserFault, match=problem):
        prepare_launch(host, model, family_options=options)


def test_kv_tiers_that_are_not_built_in_need_a_plugin(host: PluginHost, model: Path) -> None:
    prepare_launch(host, model, options=CoreOptions(kv_offload="host,disk"))
    with pytest.raises(PluginFault, match="KV offload tier 'remote'"):
        prepare_launch(host, model, options=CoreOptions(kv_offload="host,remote"))


def test_a_bad_folder_is_a_config_error(host: PluginHost, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        prepare_launch(host, tmp_path / "nowhere")


@pytest.mark.parametrize("model_type", ["deepseek_v2", "kimi_k2", "kimi_k25"])
def test_later_families_say_that_they_are_not_implemented(model: Path, model_type: str) -> None:
    (model / "config.json").write_text(json.dumps({"model_type": model_type}))
    host = PluginHost.load(HostSettings(allowed=frozenset({"qwen35", "dsv2lite", "kimik2"})))
    with pytest.raises(ConfigError, match="not implemented in this version"):
        prepare_launch(host, model, options=CoreOptions(tp=8))
