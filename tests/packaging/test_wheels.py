"""Built wheels, installed into environments of their own: what users get from an index."""

from __future__ import annotations

import json
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from .wheelhouse import PROJECTS, ROOT, Environment

pytestmark = pytest.mark.real_inputs

#: Runs `pegainfer` with the heavy modules missing.
LIGHT = """
import sys
for name in "cupy triton torch numpy tokenizers litestar uvicorn jinja2".split():
    sys.modules[name] = None
from pegainfer_core.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def metadata(wheel: Path, name: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (member,) = [n for n in archive.namelist() if n.endswith(f".dist-info/{name}")]
        return archive.read(member).decode()


@pytest.mark.parametrize("name", PROJECTS)
def test_a_wheel_holds_all_of_its_package_and_no_test(wheels: dict[str, Path], name: str) -> None:
    with zipfile.ZipFile(wheels[name]) as archive:
        held = {n for n in archive.namelist() if ".dist-info/" not in n}
    folder = ROOT / PROJECTS[name]
    package = "pegainfer_core" if name == "pegainfer" else name.replace("-", "_")
    base = folder if name == "pegainfer" else folder / "src"
    sources = {
        str(path.relative_to(base))
        for path in (base / package).rglob("*")
        if path.is_file() and (path.suffix == ".py" or path.parent.name == "static")
    }
    assert sources <= held
    assert f"{package}/py.typed" in held
    assert {n.split("/")[0] for n in held} == {package}
    assert not any("test_" in n or "conftest" in n for n in held)


@pytest.mark.parametrize("name", PROJECTS)
def test_versions_go_together(wheels: dict[str, Path], name: str) -> None:
    from pegainfer_core import __version__

    headers = Parser().parsestr(metadata(wheels[name], "METADATA"))
    assert headers["Version"] == __version__
    assert headers["License-Expression"] == "Apache-2.0"
    requires = headers.get_all("Requires-Dist") or []
    if name != "pegainfer":
        assert any(r.replace(" ", "") in CORE_FENCE for r in requires), requires
        assert "[pegainfer.plugins]" in metadata(wheels[name], "entry_points.txt")


#: The metadata spells a range in either order.
CORE_FENCE = {"pegainfer<0.2,>=0.1", "pegainfer>=0.1,<0.2"}


def test_the_extras_name_the_packages(wheels: dict[str, Path]) -> None:
    headers = Parser().parsestr(metadata(wheels["pegainfer"], "METADATA"))
    extras = set(headers.get_all("Provides-Extra") or [])
    plugins = {"server", "qwen3", "qwen35", "dsv2lite", "kimik2", "bench"}
    assert extras == plugins | {
        "cuda12",
        "cuda13",
        "grammar",
        "hf",
        "kv-events",
        "otel",
        "testing",
        "all",
    }


def test_core_alone_is_useful(core_alone: Environment) -> None:
    version = core_alone.run("pegainfer", "--version")
    assert version.returncode == 0 and version.stdout.startswith("pegainfer ")
    overview = core_alone.run("pegainfer", "--help")
    assert overview.returncode == 0 and "pegainfer-server" in overview.stdout
    assert core_alone.plugins() == {}
    doctor = core_alone.run("pegainfer", "doctor")
    assert doctor.returncode == 0, doctor.stdout
    assert "no model family is loaded; to add one:" in doctor.stdout


def test_core_alone_says_what_to_install(core_alone: Environment, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    probe = core_alone.run("pegainfer", "probe", str(tmp_path))
    assert probe.returncode == 2
    pip = f"{core_alone.python} -m pip install"
    assert f"install one: {pip} pegainfer-qwen3" in probe.stderr
    serve = core_alone.run("pegainfer", "serve", "--model-path", str(tmp_path))
    assert serve.returncode == 2
    assert f"install: {pip} pegainfer-server pegainfer-qwen3\n" in serve.stderr
    assert serve.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [["--help"], ["plugins"], ["doctor"], ["probe"]])
def test_core_alone_imports_nothing_heavy(
    core_alone: Environment, tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    argv = [*words, str(tmp_path)] if words == ["probe"] else words
    done = core_alone.run("python", "-W", "error", "-c", LIGHT, *argv)
    assert done.returncode == (2 if words == ["probe"] else 0), done.stderr
    assert "Traceback" not in done.stderr


def test_every_plugin_loads_from_its_wheel(everything: Environment, tmp_path: Path) -> None:
    states = everything.plugins()
    names = ("qwen3", "qwen35", "dsv2lite", "kimik2", "bench", "server", "echo", "shelf")
    assert states == dict.fromkeys(names, "loaded")
    for model_type, family in (("qwen3", "qwen3"), ("kimi_k2", "kimik2"), ("echo", "echo")):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
        probe = everything.run("pegainfer", "probe", str(tmp_path), "--json")
        assert json.loads(probe.stdout)["family"] == family, probe.stderr
    assert everything.run("pegainfer", "serve", "--help").returncode == 0


def test_the_installed_packages_are_the_wheels(everything: Environment) -> None:
    code = "import pegainfer_core, pegainfer_qwen3; print(pegainfer_core.__file__)"
    done = everything.run("python", "-c", code)
    assert str(ROOT) not in done.stdout and "site-packages" in done.stdout
