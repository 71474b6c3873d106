"""The conformance kit of tiers finds what it is there to find: each fault fails the right tests."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

import pytest

from pegainfer_core.testing import KvTierConformance

ROOT = Path(__file__).resolve().parents[2]
TIERS = Path(__file__).with_name("broken_tiers.py")
KIT = {name for name in vars(KvTierConformance) if name.startswith("test_")}

#: By test class: tests that its fault must fail.
EXPECTED: dict[str, set[str]] = {
    "TestOneWrongBit": {
        "test_saved_records_are_loaded_byte_for_byte",
        "test_a_call_of_more_than_fits_ends",
    },
    "TestReturnsNoFuture": {"test_calls_return_futures"},
    "TestAnswersHitsOnly": {"test_calls_return_futures", "test_answers_lie_parallel_to_the_keys"},
    "TestGroupBlind": {"test_groups_are_kept_apart", "test_stats_count_what_is_held"},
    "TestKeepsTheBuffer": {"test_a_save_is_done_when_its_future_is"},
    "TestWritesLate": {
        "test_saved_records_are_loaded_byte_for_byte",
        "test_a_load_is_done_when_its_future_is",
    },
    "TestWritesTwice": {"test_a_load_is_done_when_its_future_is"},
    "TestRefusesRepetition": {"test_saving_again_is_a_success"},
    "TestDropsNothing": {"test_dropped_records_are_gone", "test_stats_count_what_is_held"},
    "TestDropsEverything": {"test_dropped_records_are_gone"},
    "TestUnbounded": {"test_the_limit_is_kept"},
    "TestPretendsToKeep": {"test_the_limit_is_kept"},
    "TestSharedScratch": {"test_many_threads_may_call"},
    "TestCancelsInNameOnly": {"test_a_cancelled_call_leaves_its_buffers_alone"},
    "TestCountsNothing": {"test_stats_count_what_is_held"},
    "TestSharesModels": {"test_another_models_records_are_not_found"},
    "TestWorksOnWhenClosed": {"test_close_ends_everything"},
    "TestLeavesAThread": {"test_close_ends_everything"},
    "TestForgetsAtRestart": {"test_a_second_opening_finds_what_is_right"},
    "TestRevives": {"test_a_second_opening_finds_what_is_right"},
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bool]]:
    """Whether each test passed, by class and name, from one run of pytest."""
    report = tmp_path_factory.mktemp("teeth") / "report.xml"
    named = [f"{TIERS}::{c}::{test}" for c, tests in EXPECTED.items() for test in sorted(tests)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no"]
    done = subprocess.run(
        [*command, f"--junitxml={report}", f"{TIERS}::TestSound", *named],
        cwd=ROOT,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found: dict[str, dict[str, bool]] = defaultdict(dict)
    for case in ElementTree.parse(report).iter("testcase"):
        passed = all(child.tag not in ("failure", "error", "skipped") for child in case)
        found[case.attrib["classname"].rpartition(".")[2]][case.attrib["name"]] = passed
    return found


def test_a_sound_tier_passes_everything(outcomes: dict[str, dict[str, bool]]) -> None:
    assert outcomes["TestSound"] == dict.fromkeys(KIT, True)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_broken_tier_fails(outcomes: dict[str, dict[str, bool]], name: str) -> None:
    assert outcomes[name] == dict.fromkeys(EXPECTED[name], False)


def test_every_test_of_the_kit_can_fail() -> None:
    assert set().union(*EXPECTED.values()) == KIT
