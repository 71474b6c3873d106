"""`pegainfer bench plot`: result files in, a PNG out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pegainfer_bench.report import check_plotting, plot_rows, read_rows

if TYPE_CHECKING:
    from pegainfer_bench.plot_options import PlotOptions


def run(options: PlotOptions) -> int:
    """Draw; results without a label are named by their file when there are several.

    Raises:
        CommandFault: A file is no result, or matplotlib is missing.
    """
    check_plotting("--output", options.output)
    rows = []
    for name in options.result:
        for row in read_rows(Path(name)):
            if not row.label and len(options.result) > 1:
                row = msgspec.structs.replace(row, label=Path(name).stem)
            rows.append(row)
    plot_rows(rows, Path(options.output), "--output")
    print(f"{len(rows)} runs drawn into {options.output}")
    return 0
