"""Draws the TTFT ladder of `bench_offload.py ttft`: `plot_offload.py RESULT.json PLOT.png`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

SOURCES = {
    "cold": "computed",
    "disk": "restored from disk",
    "vllm": "vLLM, restored from host memory",
    "host": "restored from host memory",
    "device": "on the device",
}


def main() -> int:
    result, plot = map(Path, sys.argv[1:3])
    rows = json.loads(result.read_text())["ttft"]
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.add_subplot()
    for source, label in SOURCES.items():
        points = sorted((row["tokens"], row["ttft_ms"]) for row in rows if row["from"] == source)
        if points:
            style = "--s" if source == "vllm" else "-o"
            axes.plot(*zip(*points, strict=True), style, label=label)
    lengths = sorted({row["tokens"] for row in rows})
    axes.set(xscale="log", yscale="log", xlabel="prompt tokens", ylabel="TTFT ms")
    axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
    axes.minorticks_off()
    axes.set_yticks([5, 10, 20, 50, 100, 200, 400], ["5", "10", "20", "50", "100", "200", "400"])
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper")
    FigureCanvasAgg(figure).print_png(plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
