"""`pegainfer plugins`: every installed plugin, its state, and why it is not loaded."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from pegainfer_core.plugin.plugin_record import PluginRecord, PluginState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.cli.core_commands import PluginsOptions
    from pegainfer_core.plugin.host import PluginHost

_HEADINGS = ("plugin", "package", "api", "state", "families", "hooks")


def run(host: PluginHost, options: PluginsOptions) -> int:
    """Print the plugins; always succeeds, since a failed plugin is an answer."""
    records = [r for r in host.records if options.all or r.state is not PluginState.BLOCKED]
    if options.json:
        report = {"plugins": records, "warnings": host.warnings}
        print(msgspec.json.format(msgspec.json.encode(report)).decode())
        return 0
    if records:
        _print_table([_row(record) for record in records])
    else:
        print("no plugins are installed; a model family is one: pip install pegainfer-qwen3")
    for record in records:
        if record.error:
            print(f"\n{record.label} {record.state}: {record.error}\n  in {record.location}")
    hidden = len(host.records) - len(records)
    if hidden:
        print(f"\n{hidden} not listed, because PEGAINFER_PLUGINS leaves them out; --all shows them")
    for warning in _other_warnings(host, records):
        print(f"pegainfer: warning: {warning}", file=sys.stderr)
    return 0


def _row(record: PluginRecord) -> tuple[str, ...]:
    return (
        record.name,
        f"{record.dist} {record.version}",
        record.api or "-",
        str(record.state),
        ", ".join(record.families) or "-",
        ", ".join(record.hooks) or "-",
    )


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *rows, strict=True)]
    for row in (_HEADINGS, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def _other_warnings(host: PluginHost, records: Sequence[PluginRecord]) -> list[str]:
    """Warnings that no listed record's error repeats."""
    told = [f"plugin {record.label} {record.state}: {record.error}" for record in records]
    return [warning for warning in host.warnings if warning not in told]
