"""The load client: sends requests to a server on time and notes when what arrives."""

from pegainfer_bench.client.answer import AnswerReader
from pegainfer_bench.client.arrivals import arrival_times
from pegainfer_bench.client.driving import LoadRun, drive
from pegainfer_bench.client.load_client import LoadClient
from pegainfer_bench.client.outcome import Outcome
from pegainfer_bench.client.server_check import served_model
from pegainfer_bench.client.target import Target

__all__ = [
    "AnswerReader",
    "LoadClient",
    "LoadRun",
    "Outcome",
    "Target",
    "arrival_times",
    "drive",
    "served_model",
]
