"""Builds the checkout's wheels and installs them into environments of their own, offline."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECTS = {
    "pegainfer": ".",
    "pegainfer-server": "server",
    "pegainfer-qwen3": "plugins/pegainfer_qwen3",
    "pegainfer-qwen35": "plugins/pegainfer_qwen35",
    "pegainfer-dsv2lite": "plugins/pegainfer_dsv2lite",
    "pegainfer-kimik2": "plugins/pegainfer_kimik2",
    "pegainfer-bench": "plugins/pegainfer_bench",
    "pegainfer-echo": "docs/examples/pegainfer_echo",
    "pegainfer-shelf": "docs/examples/pegainfer_shelf",
}
_ROOT_PARTS = ("pyproject.toml", "README.md", "LICENSE", "pegainfer_core")
_JUNK = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "dist")


def build_wheels(scratch: Path) -> dict[str, Path]:
    """Build every distribution from a copy of its sources; returns the wheels by name.

    In place, setuptools would leave folders behind and pick up what earlier builds left.
    """
    sources = _copy_sources(scratch / "sources")
    wheels = scratch / "wheels"
    # The build backend itself: `pip wheel` would take three more processes a distribution.
    code = f"from setuptools import build_meta; build_meta.build_wheel({str(wheels)!r})"
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda source: _run_in(source, code), sources.values()))
    return {name: next(wheels.glob(f"{name.replace('-', '_')}-[0-9]*.whl")) for name in PROJECTS}


def _run_in(folder: Path, code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _copy_sources(target: Path) -> dict[str, Path]:
    copies: dict[str, Path] = {}
    for name, folder in PROJECTS.items():
        copies[name] = target / name
        if folder != ".":
            shutil.copytree(ROOT / folder, copies[name], ignore=_JUNK)
            continue
        copies[name].mkdir(parents=True)
        for part in _ROOT_PARTS:
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, copies[name] / part, ignore=_JUNK)
            else:
                shutil.copyfile(source, copies[name] / part)
    return copies


class Environment:
    """A virtual environment with some of the wheels and the running one's third-party packages."""

    def __init__(self, folder: Path, wheels: list[Path]) -> None:
        self._bin = folder / "bin"
        venv.create(folder, with_pip=False, symlinks=True)
        (site,) = folder.glob("lib/python*/site-packages")
        dependencies = folder / "dependencies"
        _link_third_party(dependencies)
        (site / "dependencies.pth").write_text(f"{dependencies}\n")
        command = [sys.executable, "-m", "pip", "--python", str(self._bin / "python"), "install"]
        command += ["--quiet", "--no-deps", "--no-index", *map(str, wheels)]
        subprocess.run(command, check=True, timeout=120)

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self._bin / "python"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run one of its scripts, away from the checkout."""
        environ = {
            k: v for k, v in os.environ.items() if not k.startswith(("PEGAINFER_", "PYTHON"))
        }
        return subprocess.run(
            [str(self._bin / words[0]), *words[1:]],
            cwd=self._bin,
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def plugins(self) -> dict[str, str]:
        """State by name, as `pegainfer plugins --json` says."""
        done = self.run("pegainfer", "plugins", "--json")
        assert done.returncode == 0, done.stderr
        return {p["name"]: p["state"] for p in json.loads(done.stdout)["plugins"]}


def _link_third_party(target: Path) -> None:
    """Everything installed beside us, less this project's own distributions."""
    target.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        own = entry.name.startswith(("pegainfer", "__editable__", "_pegainfer"))
        if not own and not entry.name.endswith(".pth"):
            (target / entry.name).symlink_to(entry)
