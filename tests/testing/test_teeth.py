"""The conformance kit finds what it is there to find: broken families fail the right tests."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = Path(__file__).with_name("broken_families.py")

#: By test class: exactly the tests that must fail.
EXPECTED: dict[str, set[str]] = {
    "TestSound": set(),
    "TestTwoTerminals": {"test_one_start_tokens_and_one_end_in_this_order"},
    "TestTokenAfterEnd": {"test_one_start_tokens_and_one_end_in_this_order"},
    "TestUncountedAbort": {
        "test_abort_of_a_waiting_request",
        "test_abort_while_decoding",
        "test_abort_of_ended_and_unknown_requests_is_ignored",
    },
    "TestLeakyAbort": {
        "test_abort_of_a_waiting_request",
        "test_abort_while_decoding",
        "test_abort_of_ended_and_unknown_requests_is_ignored",
    },
    "TestLingeringThread": {"test_close_ends_open_requests_and_joins_threads"},
    "TestOneTokenTooMany": {
        "test_max_tokens_is_kept",
        "test_without_max_tokens_the_context_is_filled",
        "test_a_prompt_may_fill_all_but_one_token",
    },
    "TestSentStopToken": {
        "test_a_stop_token_is_counted_but_not_sent",
        "test_ignore_eos_spares_the_clients_stop_tokens",
        "test_min_tokens_come_before_any_end",
    },
    "TestForgottenMinTokens": {"test_min_tokens_come_before_any_end"},
    "TestVagueReason": {"test_ids_outside_the_vocabulary_are_refused"},
    "TestIgnoredSeed": {"test_what_is_not_honoured_is_refused"},
    "TestCrowded": {
        "test_batched_is_alone",
        "test_more_requests_than_fit_wait_their_turn",
    },
    "TestForgetfulCache": {
        "test_a_cached_prefix_changes_no_token",
        "test_an_answer_repeats",
        "test_batched_is_alone",
        "test_more_requests_than_fit_wait_their_turn",
        "test_salts_keep_prefixes_apart",
    },
    "TestIgnoredSamplingSeed": {"test_a_seed_decides_the_answer"},
    "TestWrongRank": {"test_logprobs_describe_the_choice"},
    "TestClaimsEverything": {"test_probe_refuses_foreign_models"},
    "TestNumpyAtTop": {"test_the_light_half_imports_nothing_heavy"},
    "TestCareless": {
        "test_capabilities_are_as_stated",
        "test_every_hook_exists",
        "test_options_are_described_and_do_not_hide_core_flags",
        "test_the_entry_point_is_installed",
        "test_the_hook_api_is_one_this_host_serves",
        "test_the_import_is_within_its_budget",
        "test_the_plan_follows_the_options",
        "test_the_plan_is_deterministic",
    },
}


#: What may fail too: echo takes the request up before the abort arrives, or after.
POSSIBLE = {
    "TestUncountedAbort": {"test_abort_soon_after_submission"},
    "TestLeakyAbort": {"test_abort_soon_after_submission"},
}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, set[str]]]:
    """One run over all broken families: its output, and the failed tests by class."""
    folder = tmp_path_factory.mktemp("teeth")
    _install(folder)
    report = folder / "report.xml"
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    options = ["-q", "--tb=short", "--override-ini=addopts=--import-mode=importlib"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"--junitxml={report}", str(FAMILIES)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=environ,
        timeout=300,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    failed: dict[str, set[str]] = defaultdict(set)
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        family = case.attrib["classname"].rpartition(".")[2]
        bad = {case.attrib["name"].partition("[")[0]} if len(case.findall("failure")) else set()
        assert not case.findall("error"), f"{family}: {case.attrib['name']}\n{run.stdout}"
        failed[family] |= bad
    return run.stdout, failed


def _install(folder: Path) -> None:
    """Metadata with an entry point for every plugin but the careless one."""
    plugins = {"claims": "tests.testing.light_plugins:greedy"}
    plugins["numpy"] = "tests.testing.numpy_at_top"
    info = folder / "broken_families-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: broken-families\nVersion: 1.0\nRequires-Dist: pegainfer\n"
    )
    lines = [f"{name} = {value}\n" for name, value in plugins.items()]
    (info / "entry_points.txt").write_text("[pegainfer.plugins]\n" + "".join(lines))


@pytest.mark.parametrize("family", EXPECTED)
def test_a_broken_family_fails_the_right_tests(
    done: tuple[str, dict[str, set[str]]], family: str
) -> None:
    output, failed = done
    assert failed[family] - POSSIBLE.get(family, set()) == EXPECTED[family], output


def test_every_broken_family_is_expected(done: tuple[str, dict[str, set[str]]]) -> None:
    assert set(done[1]) == set(EXPECTED)


def test_the_summary_counts_and_names_what_was_skipped(
    done: tuple[str, dict[str, set[str]]],
) -> None:
    output, _ = done
    (line,) = [line for line in output.splitlines() if "::TestSound  " in line]
    assert line.endswith("passed, 5 skipped") and "L1: " in line
    assert "  skipped test_salts_keep_prefixes_apart: the family states that it has no" in output


@pytest.mark.parametrize(
    "message",
    [
        "has 2 terminal events",
        "came after the terminal event",
        "no KV page in use, though all have ended",
        "threads outlive close()",
        "completion_tokens is 0, but",
        "claimed {'model_type': 'llama'",
        "import of numpy halted",
        "--max-num-seqs is a common flag already",
        "unknown hook 'engine_redy'; did you mean 'engine_ready'?",
    ],
)
def test_failures_say_what_is_wrong(done: tuple[str, dict[str, set[str]]], message: str) -> None:
    assert message in done[0]
