"""Commands that launch a model: two passes, and no flag that nobody reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..plugin_host.plugin_site import PluginSite
from .conftest import Outcome, Run

LAUNCHER = """
import msgspec
from pegainfer_core.plugin import FamilyOptions


class Options(msgspec.Struct, frozen=True):
    port: int = 8000
    names: list[str] = []


def start(launch, options):
    print(msgspec.json.encode({
        "dir": launch.context.model_dir,
        "family": launch.context.family,
        "options": launch.context.options,
        "own": launch.context.family_options,
        "port": options.port,
        "names": options.names,
    }).decode())
    return 0


@hookimpl
def register_commands(cli):
    cli.add_launch_command("start", summary="starts a model", options=Options, run=start)


class AOptions(FamilyOptions):
    speed: int = 1
    twist: bool = False


class BOptions(FamilyOptions):
    depth: int = 1
    twist: str = ""


class A(Family):
    options = AOptions


class B(Family):
    options = BOptions
    shared_options = frozenset({"max_model_len", "tp"})


@hookimpl
def model_families():
    return [A("fam-a", "a", "both"), B("fam-b", "b", "both")]
"""


@pytest.fixture
def start(run: Run, site: PluginSite) -> Run:
    site.install("launcher", LAUNCHER)

    def run_start(*words: str) -> Outcome:
        return run("start", *words, plugins="launcher")

    return run_start


@pytest.fixture
def models(tmp_path: Path) -> dict[str, str]:
    folders = {}
    for model_type in ("a", "b", "both", "none"):
        folder = tmp_path / model_type
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
        folders[model_type] = str(folder)
    return folders


def test_core_command_and_family_flags_reach_their_owners(
    start: Run, models: dict[str, str]
) -> None:
    done = start(
        *"--port 81 --speed 5 --max-model-len 32 --twist --names x --names y".split(), models["a"]
    )
    assert done.code == 0
    assert json.loads(done.out) == {
        "dir": models["a"],
        "family": "fam-a",
        "options": {"max_model_len": 32},
        "own": {"speed": 5, "twist": True},
        "port": 81,
        "names": ["x", "y"],
    }
    assert done.err == "pegainfer: planned by a test\n"


def test_one_flag_name_may_have_two_shapes(start: Run, models: dict[str, str]) -> None:
    done = start("--model-path", models["b"], "--twist", "hard", "--tp", "2")
    assert json.loads(done.out)["own"] == {"twist": "hard"}
    assert json.loads(done.out)["options"] == {"tp": 2}
    assert json.loads(start(models["b"], "--twist", "hard").out)["own"] == {"twist": "hard"}


def test_the_model_as_flag_or_word_in_any_place(start: Run, models: dict[str, str]) -> None:
    for words in (
        [models["a"], "--port", "81"],
        ["--port", "81", models["a"]],
        ["--port=81", "--model-path", models["a"]],
        [f"--model-path={models['a']}", "--port=81"],
    ):
        assert json.loads(start(*words).out)["port"] == 81


def test_family_decides_between_two_claims(start: Run, models: dict[str, str]) -> None:
    done = start(models["both"])
    assert done.code == 2 and "--family fam-a or --family fam-b" in done.err
    assert json.loads(start(models["both"], "--family", "fam-b").out)["family"] == "fam-b"


@pytest.mark.parametrize(
    ("model", "words", "line"),
    [
        ("a", "--tp 2", "--tp is not used by the model family fam-a"),
        ("a", "--no-prefix-cache", "--prefix-cache is not used by the model family fam-a"),
        ("a", "--depth 2", "--depth is a flag of the model family fam-b"),
        ("a", "--sped 2", "unknown flag --sped; did you mean --speed?"),
        ("a", "--max-model-length 2", "unknown flag --max-model-length"),
        ("a", "--speed fast", "--speed fast: expected int"),
        ("a", "--max-num-seqs 0", "--max-num-seqs 0: expected int >= 1"),
        ("a", "--port x", "--port x: expected int"),
        ("a", "another", "unexpected argument 'another'"),
        ("a", "--family fam-c", "--family fam-c: no such model family"),
        ("b", "--cuda-graph=maybe", "--cuda-graph=maybe: expected true or false"),
    ],
)
def test_faults_end_with_one_line_and_code_2(
    start: Run, models: dict[str, str], model: str, words: str, line: str
) -> None:
    done = start(models[model], *words.split())
    assert done.code == 2 and done.out == ""
    assert line in done.err and done.err.count("\n") == 1


def test_a_default_value_that_was_given_still_counts_as_given(
    start: Run, models: dict[str, str]
) -> None:
    assert start(models["a"], "--tp", "1").code == 2


def test_no_model_and_a_missing_one(start: Run, tmp_path: Path) -> None:
    assert "MODEL (or --model-path) is missing" in start().err
    done = start(str(tmp_path / "nowhere"))
    assert done.code == 2 and "nowhere" in done.err and done.err.count("\n") == 1


def test_no_family_for_the_model_says_which_plugins_failed(
    run: Run, site: PluginSite, models: dict[str, str]
) -> None:
    site.install("launcher", LAUNCHER)
    site.install("imp", "import a_module_that_is_not_there\n")
    done = run("start", models["none"], plugins="launcher,imp")
    assert done.code == 2
    assert "model_type 'none'" in done.err
    assert "plugin 'imp' (package dist-imp 1.0) failed" in done.err.split("error:", 1)[1]


def test_help_shows_every_family(start: Run) -> None:
    done = start("--help")
    assert done.code == 0
    for text in ("--model-path MODEL", "--max-model-len N", "--port N", "model family fam-a"):
        assert text in done.out
    assert done.out.count("--twist") >= 1


def test_a_family_whose_option_is_already_a_flag(
    run: Run, site: PluginSite, models: dict[str, str]
) -> None:
    site.install("launcher", LAUNCHER.replace("depth: int = 1", "port: int = 1"))
    done = run("start", models["a"], plugins="launcher")
    assert done.code == 2
    assert "fam-b (package dist-launcher) has an option --port" in done.err


def test_a_command_whose_options_cannot_be_flags(run: Run, site: PluginSite) -> None:
    site.install(
        "launcher", LAUNCHER.replace("names: list[str] = []", "names: dict[str, str] = {}")
    )
    done = run("start", plugins="launcher")
    assert done.code == 2 and "Options.names cannot be a flag" in done.err
