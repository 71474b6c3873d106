"""Opening the tiers that `--kv-offload` names, as an engine's process does."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pegainfer_core.contract import CoreOptions, LaunchContext, TierChoice
from pegainfer_core.kv import TierPlace
from pegainfer_core.offload import RecordLayout, open_tiers
from pegainfer_core.offload.disk import DiskTier
from pegainfer_core.weights import ConfigError

from .disk_bench import WAIT_S, blank, keys, sealed
from .scripted_tier import ScriptedTier

LAYOUT = RecordLayout(page_bytes=9000)


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> list[TierPlace]:
    """Where the tier `scripted` of a plugin was opened."""
    seen: list[TierPlace] = []

    def open_tier(place: TierPlace) -> ScriptedTier:
        seen.append(place)
        return ScriptedTier()

    install(monkeypatch, open_tier)
    return seen


def install(monkeypatch: pytest.MonkeyPatch, open_tier: Callable[[TierPlace], object]) -> None:
    factory = types.SimpleNamespace(name="scripted", open=open_tier)
    module: Any = types.ModuleType("tiers_for_tests")
    module.plugin = types.SimpleNamespace(kv_tiers=lambda: [factory])
    monkeypatch.setitem(sys.modules, "tiers_for_tests", module)


def context(path: Path, offload: str, *choices: TierChoice) -> LaunchContext:
    options = CoreOptions(
        kv_offload=offload, kv_offload_disk_path=str(path), kv_offload_disk_gib=0.25
    )
    return LaunchContext(
        model_dir="/model", family="f", entry_point="p", options=options, kv_tiers=list(choices)
    )


SCRIPTED = TierChoice(name="scripted", entry_point="tiers_for_tests:plugin")


@pytest.mark.parametrize("offload", ["host", "host,disk"])
def test_core_opens_its_own_without_a_plan(tmp_path: Path, offload: str) -> None:
    tiers = open_tiers(context(tmp_path, offload), "ab" * 32, {0: LAYOUT})
    assert [tier.name for tier in tiers] == offload.split(",")[1:]
    for tier in tiers:
        assert tier.save(sealed([1])).outcome.result(WAIT_S) == [True]
        assert tier.load(blank([1])).outcome.result(WAIT_S) == [True]
        assert tier.close()


def test_tiers_are_opened_in_their_order(tmp_path: Path, places: list[TierPlace]) -> None:
    tiers = open_tiers(context(tmp_path, "host,scripted, disk", SCRIPTED), "ab" * 32, {0: LAYOUT})
    assert [tier.name for tier in tiers] == ["scripted", "disk"]
    (place,) = places
    assert place == TierPlace(
        identity="ab" * 32,
        record_bytes={0: LAYOUT.record_bytes},
        capacity_bytes=None,
        path=str(tmp_path),
    )
    assert all(tier.close() for tier in tiers)


def test_the_disks_limit_is_the_disks(tmp_path: Path) -> None:
    (tier,) = open_tiers(context(tmp_path, "host,disk"), "ab" * 32, {0: LAYOUT})
    tier.contains(keys([0])).outcome.result(WAIT_S)
    assert tier.stats().tier.capacity_bytes == 1 << 28
    assert tier.close()


def test_a_tier_nobody_offers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--kv-offload host,shelf: nobody offers shelf"):
        open_tiers(context(tmp_path, "host,shelf"), "ab" * 32, {0: LAYOUT})


def refuse(error: Exception) -> Callable[[TierPlace], object]:
    def open_tier(place: TierPlace) -> object:
        raise error

    return open_tier


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConfigError("SHELF_URL is not set; export it"), r"^SHELF_URL is not set; export it$"),
        (
            ConnectionRefusedError("no answer"),
            r"^the KV offload tier 'scripted' of plugin tiers_for_tests:plugin cannot be opened: "
            r"ConnectionRefusedError: no answer$",
        ),
    ],
)
def test_a_tier_that_does_not_open_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    install(monkeypatch, refuse(error))
    with pytest.raises(ConfigError, match=message):
        open_tiers(context(tmp_path, "host,disk,scripted", SCRIPTED), "ab" * 32, {0: LAYOUT})
    DiskTier(
        TierPlace(identity="ab" * 32, record_bytes={0: 12288}, path=str(tmp_path))
    ).close()  # The disk tier was closed again: its folder is free.
