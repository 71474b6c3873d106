"""What the pages tell people to type exists: commands, flags, targets, paths, extras, links."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from pegainfer_core.cli.command_table import CommandTable
from pegainfer_core.cli.core_commands import add_core_commands
from pegainfer_core.cli.flags import Parser, place_words
from pegainfer_core.cli.launching import ModelOptions
from pegainfer_core.contract import CoreOptions
from pegainfer_core.plugin import PluginHost
from pegainfer_core.plugin.flag import Flag, flags_of
from tests.docs.pages import ROOT, Block, blocks, commands, pages

SHELL = [
    block for page in pages() for language in ("sh", "bash") for block in blocks(page, language)
]
PYTHON = [block for page in pages() for block in blocks(page, "python")]
COMMANDS = {
    f"{block.page.name}: {shlex.join(words)}": (block, words)
    for block in SHELL
    for words in commands(block.text)
}
LINKS = {
    f"{page.relative_to(ROOT)}: {target}": (page, target)
    for page in pages()
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    if "://" not in target
}
#: Commands that change nothing and need no model.
HARMLESS = ("plugins", "doctor", "--version", "--help")


def of(program: str) -> list[str]:
    """The commands that run one program."""
    return [name for name, (_, words) in COMMANDS.items() if words[0] == program]


@pytest.fixture(scope="module")
def table() -> CommandTable:
    host = PluginHost.load()
    table = CommandTable()
    add_core_commands(table, host)
    table.load_plugin_commands(host)
    return table


def test_pages_have_commands() -> None:
    assert any(words[0] == "pegainfer" for _, words in COMMANDS.values())
    assert len(LINKS) > 5 and len(PYTHON) > 5


@pytest.mark.parametrize("name", of("pegainfer"))
def test_a_pegainfer_command_and_its_flags_exist(name: str, table: CommandTable) -> None:
    _, words = COMMANDS[name]
    if words[1] in HARMLESS:
        assert run([sys.executable, "-m", "pegainfer_core.cli.main", *words[1:]]).returncode == 0
        return
    found = table.find(words[1:])
    assert found is not None, f"there is no command {words[1]}"
    command, argv = found
    flags = flags_of(command.options)
    if command.launch is not None:
        flags += [*flags_of(ModelOptions), *flags_of(CoreOptions), *family_flags()]
    parser = Parser("pegainfer", "")
    parser.add_flags("all", flags)
    values, rest = parser.parse(argv)
    place_words(flags, values, rest)


@pytest.mark.parametrize("name", of("make"))
def test_a_make_target_exists(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for word in COMMANDS[name][1][1:]:
        if "=" not in word:
            assert re.search(rf"^{re.escape(word)}:", makefile, re.MULTILINE), word


@pytest.mark.parametrize("name", of("pip"))
def test_what_pip_installs_exists(name: str) -> None:
    block, words = COMMANDS[name]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    example = block.page.parent / "pyproject.toml"
    for flag, word in pairwise(words):
        if flag == "-e":
            place = block.page.parent if example.exists() else ROOT
            assert (place / word.partition("[")[0] / "pyproject.toml").exists(), word
        for extra in re.findall(r"^pegainfer\[(.*)\]$", word):
            assert set(extra.split(",")) <= extras.keys()


@pytest.mark.parametrize("name", of("python"))
def test_a_script_of_this_project_exists(name: str) -> None:
    word = COMMANDS[name][1][1]
    assert not word.endswith(".py") or (ROOT / word).exists(), word


@pytest.mark.parametrize("name", LINKS)
def test_a_link_leads_somewhere(name: str) -> None:
    page, target = LINKS[name]
    assert (page.parent / target).exists()


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.name)
def test_python_compiles(block: Block) -> None:
    compile(block.text, block.name, "exec", dont_inherit=True)


def test_the_readme_example_runs() -> None:
    """The offline API on the sample checkpoint, as printed in the README."""
    (block,) = blocks(ROOT / "README.md", "python")
    done = run([sys.executable, "-W", "error", "-c", block.text])
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) >= 5


def run(words: list[str]) -> subprocess.CompletedProcess[str]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PEGAINFER_")}
    return subprocess.run(
        words, cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=120
    )


def family_flags() -> list[Flag]:
    """Of the echo family, the only one with flags of its own that pages show."""
    from pegainfer_echo.plugin import EchoOptions

    return flags_of(EchoOptions)


def test_the_newcomers_pages_are_linked_from_the_readme() -> None:
    linked = {target for page, target in LINKS.values() if page == ROOT / "README.md"}
    for page in ("docs/architecture.md", "docs/plugins/tutorial.md"):
        assert page in linked
    for page in sorted(Path(ROOT / "docs" / "plugins").glob("*.md")):
        named = [p for p, target in LINKS.values() if target.endswith(page.name)]
        assert named, f"no page links to {page.name}"
