"""Finds installed plugins in package metadata. Imports none of them."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING, NamedTuple

from pegainfer_core.plugin.api import ENTRY_POINT_GROUP
from pegainfer_core.plugin.plugin_record import PluginRecord

if TYPE_CHECKING:
    from collections.abc import Iterator


class Discovery(NamedTuple):
    """Entry points found, and what is odd about how they are installed."""

    plugins: list[tuple[PluginRecord, metadata.EntryPoint]]
    warnings: list[str]


class _Copy(NamedTuple):
    """One place a distribution is installed in."""

    name: str
    version: str
    folder: str
    entry_points: tuple[metadata.EntryPoint, ...]


def find_plugins() -> Discovery:
    """Every entry point of the group, from the first copy on `sys.path` of each distribution.

    A distribution's metadata can lie on the path twice, as with editable installs. Equal copies
    are one; others earn a warning with both places, since the import system may pick either.
    """
    copies: dict[str, list[_Copy]] = {}
    for name, copy in _installed_copies():
        copies.setdefault(name, []).append(copy)
    found = Discovery([], [])
    for name, places in copies.items():
        used = places[0]
        others = [place for place in (_first_on_path(name), *places[1:]) if _differ(place, used)]
        for other in others[:1]:
            found.warnings.append(
                f"package {name} is installed twice: {used.version} in {used.folder} and "
                f"{other.version} in {other.folder}; its plugins are taken from {used.folder}; "
                "uninstall one of them"
            )
        for entry in used.entry_points:
            record = PluginRecord(
                name=entry.name,
                dist=name,
                version=used.version,
                location=used.folder,
                entry_point=entry.value,
            )
            found.plugins.append((record, entry))
    return found


def _installed_copies() -> Iterator[tuple[str, _Copy]]:
    for dist in metadata.distributions():
        # Reading one small file per distribution; parsing all their metadata costs ten times more.
        if ENTRY_POINT_GROUP in (dist.read_text("entry_points.txt") or ""):
            copy = _copy_of(dist)
            yield copy.name, copy


def _copy_of(dist: metadata.Distribution) -> _Copy:
    headers = _headers(dist)
    return _Copy(
        name=headers.get("name", "unnamed"),
        version=headers.get("version", "unknown"),
        folder=str(dist.locate_file("")),
        entry_points=tuple(dist.entry_points.select(group=ENTRY_POINT_GROUP)),
    )


def _headers(dist: metadata.Distribution) -> dict[str, str]:
    """First lines of the metadata. The email parser behind `dist.metadata` takes a millisecond."""
    text = dist.read_text("METADATA") or dist.read_text("PKG-INFO") or ""
    headers: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if not colon:
            break
        headers.setdefault(key.strip().lower(), value.strip())
    return headers


def _first_on_path(name: str) -> _Copy:
    """The copy Python itself takes, which may be a stale one that has no entry points at all."""
    return _copy_of(metadata.distribution(name))


def _differ(one: _Copy, other: _Copy) -> bool:
    def offer(copy: _Copy) -> tuple[str, list[tuple[str, str]]]:
        return copy.version, sorted((entry.name, entry.value) for entry in copy.entry_points)

    return offer(one) != offer(other)
