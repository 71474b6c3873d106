"""Results as JSON files: writing, and reading back what `bench serve` wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pegainfer_core.plugin import CommandFault

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class LoadRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a plot needs of one run; figures that were not measured are None."""

    output_throughput: float
    label: str = ""
    max_concurrency: int | None = None
    request_rate: float | str = "inf"
    request_throughput: float | None = None
    mean_ttft_ms: float | None = None
    median_ttft_ms: float | None = None
    p99_ttft_ms: float | None = None
    mean_tpot_ms: float | None = None
    median_tpot_ms: float | None = None
    p99_tpot_ms: float | None = None
    median_itl_ms: float | None = None
    p99_itl_ms: float | None = None


class _Runs(msgspec.Struct):
    runs: list[LoadRow]


def write_json(path: Path, result: Mapping[str, object], flag: str) -> None:
    """Write a result.

    Raises:
        CommandFault: The file cannot be written; the message names the flag that chose it.
    """
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    except OSError as error:
        raise CommandFault(f"{flag} {path} cannot be written: {error.strerror}") from error


def read_rows(path: Path) -> list[LoadRow]:
    """The runs of a result file: one run's, a sweep's, or one JSON object a line.

    Raises:
        CommandFault: It cannot be read or holds something else.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CommandFault(f"{path} cannot be read: {error.strerror}") from error
    reasons = []
    for read in (_read_sweep, _read_run, _read_lines):
        try:
            rows = read(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            reasons.append(str(error))
        else:
            if rows:
                return rows
    raise CommandFault(f"{path} is no result of `pegainfer bench serve`: {reasons[-2]}")


def _read_sweep(data: bytes) -> list[LoadRow]:
    return msgspec.json.decode(data, type=_Runs).runs


def _read_run(data: bytes) -> list[LoadRow]:
    return [msgspec.json.decode(data, type=LoadRow)]


def _read_lines(data: bytes) -> list[LoadRow]:
    return [msgspec.json.decode(line, type=LoadRow) for line in data.splitlines() if line.strip()]
