"""What is sent: random prompts, ShareGPT conversations, files of prompts. Sends nothing."""

from pegainfer_bench.dataset.choice import DatasetChoice
from pegainfer_bench.dataset.custom import read_custom
from pegainfer_bench.dataset.random_prompts import RandomPrompts
from pegainfer_bench.dataset.request import BenchRequest
from pegainfer_bench.dataset.sharegpt import draw_sharegpt

__all__ = [
    "BenchRequest",
    "DatasetChoice",
    "RandomPrompts",
    "draw_sharegpt",
    "read_custom",
]
