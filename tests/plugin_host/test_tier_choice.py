"""What `--kv-offload` and its companions accept, and what they say about the rest."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec
import pytest

from pegainfer_core.contract import CoreOptions, TierChoice
from pegainfer_core.plugin import HostSettings, PluginFault, PluginHost, UserFault
from pegainfer_core.plugin.tier_choice import choose_tiers

from .plugin_site import PluginSite

SHELF = """
class Tier:
    name = "shelf"

    def open(self, place):
        raise NotImplementedError


@hookimpl
def kv_tiers():
    return [Tier()]
"""
DISK = TierChoice(name="disk", entry_point="pegainfer_core.plugin.core_plugin")


@pytest.fixture
def host(site: PluginSite) -> PluginHost:
    site.install("shelf", SHELF)
    return PluginHost.load(HostSettings(allowed=frozenset({"shelf"})))


def choose(
    host: PluginHost, given: Collection[str] | None = None, **values: object
) -> tuple[CoreOptions, list[TierChoice]]:
    options = msgspec.convert(values, CoreOptions)
    return choose_tiers(host, options, values if given is None else given)


def test_without_offload_nothing_is_chosen(host: PluginHost) -> None:
    options, choices = choose(host)
    assert choices == [] and options == CoreOptions()


def test_the_host_tier_needs_no_plugin_and_no_folder(host: PluginHost) -> None:
    options, choices = choose(host, kv_offload="host", kv_offload_host_gib=0.5)
    assert choices == [] and options.kv_offload_disk_path is None


def test_tiers_keep_their_order_and_name_their_plugins(host: PluginHost, tmp_path: Path) -> None:
    options, choices = choose(
        host, kv_offload="host, shelf,disk", kv_offload_disk_path=str(tmp_path / "new")
    )
    assert choices == [TierChoice(name="shelf", entry_point="site_shelf"), DISK]
    assert options.kv_offload_disk_path == str(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_the_folder_is_the_users_cache_by_default(
    host: PluginHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    options, choices = choose(host, kv_offload="host,disk")
    assert options.kv_offload_disk_path == str(tmp_path / "pegainfer" / "kv")
    assert choices == [DISK]
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    options, _ = choose(host, kv_offload="host,disk")
    assert options.kv_offload_disk_path == str(tmp_path / ".cache" / "pegainfer" / "kv")


def test_a_relative_folder_is_one_of_here(
    host: PluginHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    options, _ = choose(host, kv_offload="host,disk", kv_offload_disk_path="kv")
    assert options.kv_offload_disk_path == str(tmp_path / "kv")


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"kv_offload": "disk"}, r"--kv-offload disk: .* host comes first; give .* host,disk$"),
        ({"kv_offload": "disk,host"}, r"host comes first; give --kv-offload host,disk$"),
        ({"kv_offload": "host,,disk"}, r"'host,,disk' has an empty name"),
        ({"kv_offload": ""}, r"--kv-offload '' has an empty name; expected .* host or host,disk"),
        ({"kv_offload": "host,disk,disk"}, r"names disk twice"),
        ({"kv_offload": "host", "prefix_cache": False}, r"remove --no-prefix-cache"),
        ({"kv_offload_host_gib": 4.0}, r"--kv-offload-host-gib does nothing without --kv-offload;"),
        ({"kv_offload_disk_gib": 4.0}, r"--kv-offload-disk-gib does nothing without --kv-offload;"),
        (
            {"kv_offload": "host", "kv_offload_disk_path": "kv"},
            r"--kv-offload-disk-path does nothing without a disk tier; add .* host,disk",
        ),
        (
            {"kv_offload": "host", "kv_offload_host_gib": 1e6},
            r"--kv-offload-host-gib 1e\+06 is more than this machine's \d+\.\d GiB of memory",
        ),
        ({"kv_offload": "host,disk", "kv_offload_disk_path": __file__}, r"\.py is no folder"),
    ],
)
def test_contradictions_are_refused(
    host: PluginHost, values: dict[str, object], problem: str
) -> None:
    with pytest.raises(UserFault, match=problem):
        choose(host, **values)


def test_an_unknown_tier_is_refused_with_the_known_ones(host: PluginHost) -> None:
    with pytest.raises(PluginFault, match=r"tier 'dsik'; offered: disk, shelf"):
        choose(host, kv_offload="host,dsik")


@pytest.mark.parametrize("field", ["kv_offload_host_gib", "kv_offload_disk_gib"])
def test_sizes_are_positive(field: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="> 0"):
        msgspec.convert({field: 0.0}, CoreOptions)
