"""From outcomes to figures, tables, result files and plots. Sends nothing."""

from pegainfer_bench.report.goodput import parse_goodput
from pegainfer_bench.report.load_report import METRICS, LoadReport
from pegainfer_bench.report.load_table import load_table
from pegainfer_bench.report.percentiles import Summary, parse_percentiles, percentile
from pegainfer_bench.report.plotting import check_plotting, plot_rows
from pegainfer_bench.report.result_file import LoadRow, read_rows, write_json

__all__ = [
    "METRICS",
    "LoadReport",
    "LoadRow",
    "Summary",
    "check_plotting",
    "load_table",
    "parse_goodput",
    "parse_percentiles",
    "percentile",
    "plot_rows",
    "read_rows",
    "write_json",
]
