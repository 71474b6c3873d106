"""Counters and histograms of the server and their text form."""

from pegainfer_server.metrics.engine_metrics import write_engine_metrics
from pegainfer_server.metrics.exposition import CONTENT_TYPE, Exposition
from pegainfer_server.metrics.histogram import Histogram
from pegainfer_server.metrics.process_metrics import write_process_metrics
from pegainfer_server.metrics.request_metrics import RequestMetrics

__all__ = [
    "CONTENT_TYPE",
    "Exposition",
    "Histogram",
    "RequestMetrics",
    "write_engine_metrics",
    "write_process_metrics",
]
