"""`serve` without the server, or without the family's plugin: the exact command to run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pegainfer_core.cli.command_table import CommandTable
from pegainfer_core.cli.missing_command import missing_command
from pegainfer_core.plugin import HostSettings, PluginHost
from pegainfer_core.plugin.install_hint import install_command
from pegainfer_core.plugin.known import package_for_command, package_for_family

from ..plugin_host.plugin_site import PluginSite
from .conftest import Run

SERVER = package_for_command("serve")
QWEN3 = package_for_family("qwen3")


@pytest.fixture
def bare_host() -> PluginHost:
    """Core alone: no plugin is installed."""
    return PluginHost(HostSettings())


def message(host: PluginHost, *words: str) -> str:
    return str(missing_command(CommandTable(), host, words))


@pytest.mark.parametrize("words", [["serve"], ["serve", "--port", "80"]])
def test_without_the_server(bare_host: PluginHost, words: list[str]) -> None:
    assert SERVER is not None
    text = message(bare_host, *words)
    assert "needs pegainfer-server" in text
    assert text.endswith(f"install: {install_command(SERVER)}")


@pytest.mark.parametrize("form", ["{}", "--model-path={}", "--model-path {}"])
def test_without_the_server_and_the_family(
    bare_host: PluginHost, tmp_path: Path, form: str
) -> None:
    assert SERVER is not None and QWEN3 is not None
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    text = message(bare_host, "serve", *form.format(tmp_path).split())
    assert "needs pegainfer-server and pegainfer-qwen3" in text
    assert text.endswith(f"install: {install_command(SERVER, QWEN3)}")


def test_with_a_server_that_is_blocked(run: Run, site: PluginSite) -> None:
    done = run("serve", plugins="qwen3")
    assert done.code == 2
    assert "plugin 'server' (package pegainfer-server" in done.err
    assert "PEGAINFER_PLUGINS does not name it" in done.err


def test_with_a_server_that_failed(site: PluginSite) -> None:
    site.install("server", "import litestar_is_broken\n", dist="pegainfer-server")
    host = PluginHost(HostSettings())
    from pegainfer_core.plugin.discovery import find_plugins

    found = find_plugins().plugins
    host.load_plugins([p for p in found if p[0].entry_point == "site_server"])
    text = message(host, "serve")
    assert "No module named 'litestar_is_broken'" in text and "install" not in text


@pytest.mark.parametrize("words", [["bench"], ["bench", "--help"], ["bench", "sevre"]])
def test_half_of_a_name_lists_what_may_follow(bare_host: PluginHost, words: list[str]) -> None:
    expected = "needs one of kernels, latency, plot, serve, startup, throughput behind it"
    assert message(bare_host, *words) == f"pegainfer bench {expected}"


def test_without_the_benchmarks(bare_host: PluginHost) -> None:
    known = package_for_command("bench serve")
    assert known is not None
    text = message(bare_host, "bench", "serve", "--port", "80")
    assert text.endswith(f"needs pegainfer-bench; install: {install_command(known)}")
