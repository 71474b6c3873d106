"""Installs this checkout's wheels with pip, as from an index, and tries what they install.

Unlike the default tests this resolves and downloads every dependency, in environments that inherit
nothing. Each step is one of the README's or the docs' ways to install.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECTS = [".", "server", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("plugins/*"))]

#: Environment, what is asked of pip in it one after the other, and the plugins then loaded.
INSTALLS = [
    ("light", "pegainfer", []),
    ("light", "pegainfer[qwen35]", ["qwen35"]),
    ("bench", "pegainfer[bench]", ["bench"]),
    ("full", "pegainfer[all]", ["dsv2lite", "kimik2", "qwen3", "qwen35", "server"]),
]
#: What a core without server and GPU must not bring.
HEAVY = ("torch", "cupy", "litestar")


def main() -> int:
    """Run every step; returns the process's exit status."""
    with tempfile.TemporaryDirectory() as scratch:
        wheels = Path(scratch) / "wheels"
        print("building wheels", flush=True)
        build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels)]
        pip(Path(sys.executable), *build, *sources(scratch))
        for name, requirement, expected in INSTALLS:
            check_install(Path(scratch) / name, requirement, wheels, expected)
    print("packaging is sound")
    return 0


def sources(scratch: str) -> list[str]:
    """Copies of the projects' committed and new files, so that no build touches the checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    copy = Path(scratch) / "checkout"
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    return [str(copy / project) for project in PROJECTS]


def check_install(folder: Path, requirement: str, wheels: Path, expected: list[str]) -> None:
    """Install one requirement into an environment that inherits nothing; see what it gives."""
    print(f"pip install {requirement!r}", flush=True)
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    pip(python, "install", "--find-links", str(wheels), requirement)
    listed = json.loads(run(folder, "plugins", "--json"))["plugins"]
    loaded = sorted(plugin["name"] for plugin in listed if plugin["state"] == "loaded")
    assert loaded == expected, f"{requirement}: loaded {loaded}, expected {expected}"
    run(folder, "doctor")
    if "server" in expected:
        run(folder, "serve", "--help")
    else:
        packages = subprocess.run(
            [python, "-m", "pip", "list", "--format", "freeze"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        names = [line.partition("==")[0].lower() for line in packages.splitlines()]
        heavy = [name for name in names if name.startswith(HEAVY)]
        assert not heavy, f"{requirement} brings {', '.join(heavy)}"


def pip(python: Path, *words: str) -> None:
    """Run pip, quietly unless it fails."""
    command = [str(python), "-m", "pip", "--disable-pip-version-check", words[0], "--quiet"]
    subprocess.run([*command, *words[1:]], check=True)


def run(folder: Path, *words: str) -> str:
    """Run the environment's `pegainfer` away from the checkout; it must succeed."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("PEGAINFER_", "PYTHON"))}
    done = subprocess.run(
        [str(folder / "bin" / "pegainfer"), *words],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"pegainfer {' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
