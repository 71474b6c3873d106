from __future__ import annotations

from pathlib import Path

import pytest

from pegainfer_core.plugin import PluginHost

from .plugin_site import PluginSite

PLUGIN = "@hookimpl\ndef model_families():\n    return []\n"


def installed_twice(host: PluginHost) -> list[str]:
    return [warning for warning in host.warnings if "installed twice" in warning]


@pytest.fixture
def earlier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: PluginSite) -> PluginSite:
    """A folder before `site` on the path."""
    folder = tmp_path / "earlier"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return PluginSite(folder)


def test_stale_metadata_that_hides_a_plugin_is_reported_and_the_plugin_loads(
    site: PluginSite, earlier: PluginSite
) -> None:
    site.install("hidden", PLUGIN, version="2.0")
    info = earlier.folder / "dist_hidden.egg-info"
    info.mkdir()
    (info / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: dist-hidden\nVersion: 1.0\n")
    host = PluginHost.load()
    (warning,) = installed_twice(host)
    assert str(earlier.folder) in warning and str(site.folder) in warning
    assert "hidden" in {record.name for record in host.records}


def test_two_versions_on_the_path_are_reported_and_the_first_is_used(
    site: PluginSite, earlier: PluginSite
) -> None:
    site.install("double", PLUGIN, version="2.0")
    earlier.write_metadata("dist-double", {"double": "site_double"}, version="1.0")
    host = PluginHost.load()
    (warning,) = installed_twice(host)
    assert "1.0" in warning and "2.0" in warning
    (record,) = [r for r in host.records if r.name == "double"]
    assert record.version == "1.0"


def test_equal_copies_are_silent(site: PluginSite, earlier: PluginSite) -> None:
    site.install("double", PLUGIN)
    earlier.write_metadata("dist-double", {"double": "site_double"})
    host = PluginHost.load()
    assert installed_twice(host) == []
    assert [r.name for r in host.records].count("double") == 1


def test_other_groups_are_left_alone(site: PluginSite) -> None:
    site.write_entry_points("scripts", "[console_scripts]\npegainfer.plugins = nowhere:main\n")
    assert "scripts" not in {record.dist for record in PluginHost.load().records}
