"""Draws throughput and latency over load with matplotlib, which is an optional package."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pegainfer_core.plugin import CommandFault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from pegainfer_bench.report.result_file import LoadRow

_PANELS: Final = (
    ("output tokens/s", (("output_throughput", "output"),)),
    ("TTFT ms", (("mean_ttft_ms", "mean"), ("p99_ttft_ms", "p99"))),
    ("TPOT ms", (("mean_tpot_ms", "mean"), ("p99_tpot_ms", "p99"))),
    ("ITL ms", (("median_itl_ms", "median"), ("p99_itl_ms", "p99"))),
)
"""Label of each panel, and the figures in it with what the legend says of them."""

_STYLES: Final = ("-o", "--s")


def check_plotting(flag: str, path: str) -> None:
    """Find out before a long run whether its plot can be drawn.

    Raises:
        CommandFault: matplotlib is missing, or the file is no PNG or has no folder.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise CommandFault(
            f"{flag} needs matplotlib, which is not installed; install it: "
            f"{sys.executable} -m pip install 'pegainfer[bench]'"
        )
    if Path(path).suffix.lower() != ".png":
        raise CommandFault(f"{flag} {path}: the file must end in .png")
    if not Path(path).absolute().parent.is_dir():
        raise CommandFault(f"{flag} {path}: there is no folder {Path(path).absolute().parent}")


def plot_rows(rows: Sequence[LoadRow], path: Path, flag: str) -> None:
    """Draw runs over their load, one line for each label.

    Args:
        rows: Runs at concurrencies, or runs at request rates.
        path: PNG to write.
        flag: That chose the file.

    Raises:
        CommandFault: The runs are of both kinds, or the file cannot be written.
    """
    # The interface of figures alone: no window system is looked for, and nothing global is left.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    axis_label, loads = _loads(rows)
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    FigureCanvasAgg(figure)
    labels: Mapping[str, list[int]] = _by_label(rows)
    for axes, (title, figures) in zip(figure.subplots(2, 2).flat, _PANELS, strict=True):
        for label, indices in labels.items():
            order = sorted(indices, key=lambda index: loads[index])
            for style, (name, meaning) in zip(_STYLES, figures, strict=False):
                values = [_value(rows[index], name) for index in order]
                words = f"{label} {meaning}".strip()
                axes.plot([loads[index] for index in order], values, style, label=words)
        _finish(axes, title, axis_label, loads)
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise CommandFault(f"{flag} {path} cannot be written: {error.strerror}") from error


def _finish(axes: Axes, title: str, axis_label: str, loads: Sequence[float]) -> None:
    axes.set_xlabel(axis_label)
    axes.set_ylabel(title)
    axes.margins(y=0.1)
    axes.set_ylim(bottom=0)
    if min(loads) > 0 and max(loads) >= 8 * min(loads):
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted(set(loads)), [f"{load:g}" for load in sorted(set(loads))])
        axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()


def _loads(rows: Sequence[LoadRow]) -> tuple[str, list[float]]:
    rates = [float(row.request_rate) for row in rows]
    if all(math.isfinite(rate) for rate in rates):
        return "requests/s", rates
    if any(math.isfinite(rate) for rate in rates):
        raise CommandFault(
            "some of the results were measured at a request rate and some at a concurrency; "
            "plot them apart"
        )
    clients = [row.max_concurrency for row in rows]
    if all(count is None for count in clients):
        raise CommandFault(
            "the results have neither a request rate nor a maximum concurrency to be drawn over; "
            "measure with --max-concurrency, --request-rate or a sweep"
        )
    return "concurrent requests", [math.nan if count is None else count for count in clients]


def _by_label(rows: Sequence[LoadRow]) -> dict[str, list[int]]:
    labels: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        labels.setdefault(row.label, []).append(index)
    return labels


def _value(row: LoadRow, name: str) -> float:
    value = getattr(row, name)
    return math.nan if value is None else float(value)
