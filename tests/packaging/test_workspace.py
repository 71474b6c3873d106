"""pip's and uv's view of the workspace agree, and its packages are what the docs say."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from .wheelhouse import PROJECTS, ROOT

CORE_SURFACE = "backend contract engine kv lora plugin sampling testing text weights".split()


def load(path: Path) -> dict[str, dict[str, object]]:
    return tomllib.loads(path.read_text())


def test_every_project_is_listed_everywhere() -> None:
    found = {
        load(path)["project"]["name"]: str(path.parent.relative_to(ROOT))
        for pattern in ("pyproject.toml", "*/pyproject.toml", "*/*/pyproject.toml")
        for path in ROOT.glob(pattern)
        if "project" in load(path) and not path.is_relative_to(ROOT / ".venv")
    }
    found |= {
        load(path)["project"]["name"]: str(path.parent.relative_to(ROOT))
        for path in ROOT.glob("docs/examples/*/pyproject.toml")
    }
    assert found == PROJECTS
    uv = load(ROOT / "pyproject.toml")["tool"]["uv"]
    assert isinstance(uv, dict)
    assert set(uv["sources"]) == set(PROJECTS)
    members = {str(p.relative_to(ROOT)) for m in uv["workspace"]["members"] for p in ROOT.glob(m)}
    assert members == {folder for folder in PROJECTS.values() if folder != "."}


def test_pip_and_uv_install_the_same() -> None:
    lines = (ROOT / "requirements-dev.txt").read_text().splitlines()
    editable = [line.removeprefix("-e ") for line in lines if line.startswith("-e ")]
    tools = [line for line in lines if line and not line.startswith(("-e ", "#"))]
    assert editable == list(PROJECTS.values())
    group = load(ROOT / "pyproject.toml")["dependency-groups"]["dev"]
    assert group == [name for name in PROJECTS if name != "pegainfer"] + tools


def test_one_version_for_all() -> None:
    from pegainfer_core import __version__

    for folder in PROJECTS.values():
        assert load(ROOT / folder / "pyproject.toml")["project"]["version"] == __version__


def first_party_sources() -> list[Path]:
    folders = [ROOT / folder / "src" for folder in PROJECTS.values() if folder != "."]
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


@pytest.mark.parametrize("path", first_party_sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_plugins_import_only_what_core_exports(path: Path) -> None:
    """Type-checking imports count too: a plugin's author must be able to do the same."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert not any(a.name.startswith("pegainfer_core.") for a in node.names)
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith(
            "pegainfer_core"
        ):
            continue
        assert node.module is not None
        assert node.module in {"pegainfer_core", *(f"pegainfer_core.{n}" for n in CORE_SURFACE)}
        exported = list(importlib.import_module(node.module).__all__)
        if node.module == "pegainfer_core":
            exported += CORE_SURFACE
        for alias in node.names:
            assert alias.name in exported, f"{node.module} does not export {alias.name}"


@pytest.mark.parametrize("name", CORE_SURFACE)
def test_every_exported_name_exists_once(name: str) -> None:
    module = importlib.import_module(f"pegainfer_core.{name}")
    assert len(module.__all__) == len(set(module.__all__))
    for exported in module.__all__:
        assert getattr(module, exported) is not None


def test_make_help_lists_every_target() -> None:
    environ = {k: v for k, v in os.environ.items() if k != "MAKEFLAGS"}
    done = subprocess.run(
        ["make", "--no-print-directory", "-C", str(ROOT), "help"],
        capture_output=True,
        text=True,
        check=True,
        env=environ,
    )
    listed = {line.split()[0] for line in done.stdout.splitlines()}
    makefile = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert listed == set(phony.split())
    assert {"demo", "test", "lint", "test-hf", "test-gpu"} <= listed
