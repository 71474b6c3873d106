from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib import metadata

import pytest

from pegainfer_core.backend.gpu_driver import Device, Driver, DriverError
from pegainfer_core.cli import doctor_command

from ..plugin_host.plugin_site import PluginSite
from .conftest import Run

H200 = Driver((13, 0), [Device("NVIDIA H200", 150_000_000_000, (9, 0))])


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_command, "find_driver", lambda: None)


def test_a_sound_machine_without_a_gpu(run: Run, site: PluginSite) -> None:
    done = run("doctor", plugins="qwen3,qwen35")
    assert done.code == 0, done.out
    assert sys.executable in done.out
    assert f"numpy {metadata.version('numpy')}" in done.out
    assert "no CUDA driver" in done.out
    assert "'qwen3' (package pegainfer-qwen3 0.1.0) loaded" in done.out
    assert done.out.endswith("no problems found\n") and done.err == ""


def test_nothing_but_core_is_no_problem_and_says_what_to_add(run: Run, site: PluginSite) -> None:
    done = run("doctor", plugins="")
    assert done.code == 0
    assert "no model family is loaded; to add one:" in done.out


def test_broken_plugins_and_missing_requirements_are_problems(run: Run, site: PluginSite) -> None:
    site.install("imp", "import a_module_that_is_not_there\n")
    site.install("needy", "@hookimpl\ndef model_families():\n    return []\n")
    info = next(site.folder.glob("dist_needy*"))
    with (info / "METADATA").open("a") as file:
        file.write("Requires-Dist: surely-not-installed>=2\nRequires-Dist: x; extra == 'y'\n")
    done = run("doctor", plugins="imp,needy,ghost")
    assert done.code == 1
    assert "PROBLEM: 'imp' (package dist-imp 1.0) failed" in done.out
    assert "PROBLEM: dist-needy needs surely-not-installed" in done.out
    assert "PROBLEM: PEGAINFER_PLUGINS names 'ghost'" in done.out
    assert done.out.endswith("3 problems found\n")


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_command, "find_driver", lambda: H200)


def test_a_gpu_without_cupy(
    run: Run, site: PluginSite, with_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = run("doctor", plugins="")
    assert done.code == 1
    assert "0: NVIDIA H200, 150.0 GB, sm_90" in done.out
    assert "pip install 'pegainfer[cuda13]'" in done.out


def fake_trial(code: int, out: str, err: str) -> Callable[..., object]:
    return lambda *args, **kwargs: subprocess.CompletedProcess([], code, out, err)


def test_a_gpu_with_cupy(
    run: Run, site: PluginSite, with_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr(subprocess, "run", fake_trial(0, "14.2.0\n", ""))
    done = run("doctor", plugins="")
    assert done.code == 0 and "cupy         14.2.0" in done.out
    broken = "Traceback\nImportError: libnvrtc.so: cannot open\n"
    monkeypatch.setattr(subprocess, "run", fake_trial(1, "", broken))
    done = run("doctor")
    assert done.code == 1 and "it does not work: ImportError: libnvrtc.so" in done.out


def test_a_broken_driver(run: Run, site: PluginSite, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Driver:
        raise DriverError("libcuda.so.1: cuInit failed with CUDA error 100")

    monkeypatch.setattr(doctor_command, "find_driver", broken)
    done = run("doctor", plugins="")
    assert done.code == 1 and "cuInit failed" in done.out
