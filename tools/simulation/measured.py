"""Figures of `docs/benchmarks/h200-qwen3.md` that a simulation is held against."""

from __future__ import annotations

from typing import Final

from pegainfer_core.engine import StepWork

SERVING: Final = {
    "c8": {"TTFT": 92, "TPOT": 3.32, "ITL p50": 3.27, "tok/s": 2180},
    "c16": {"TTFT": 148, "TPOT": 3.89, "ITL p50": 3.63, "tok/s": 3587},
    "c32": {"TTFT": 240, "TPOT": 5.07, "ITL p50": 4.38, "tok/s": 5335},
    "c64": {"TTFT": 349, "TPOT": 7.65, "ITL p50": 5.73, "tok/s": 7098},
    "c128": {"TTFT": 646, "TPOT": 12.7, "ITL p50": 8.67, "tok/s": 8383},
    "c256": {"TTFT": 1137, "TPOT": 23.6, "ITL p50": 14.8, "tok/s": 9080},
    "poisson16": {"TTFT": 28, "TTFT p99": 49, "TPOT": 4.4, "ITL p99": 16.6, "tok/s": 2033},
    "poisson32": {"TTFT": 40, "TTFT p99": 85, "TPOT": 7.4, "ITL p99": 19.3, "tok/s": 3556},
    "poisson64": {"TTFT": 287, "TTFT p99": 800, "TPOT": 29.8, "ITL p99": 108, "tok/s": 5795},
    "poisson96": {"TTFT": 2098, "TTFT p99": 4981, "TPOT": 33.1, "ITL p99": 122, "tok/s": 6090},
}
"""By load: times in ms, means unless said, and output tokens a second."""

STEPS_MS: Final = {
    "1 x 16": (StepWork.decode(1, 16), 2.53),
    "1 x 1,024": (StepWork.decode(1, 1024), 2.65),
    "8 x 1,024": (StepWork.decode(8, 1024), 3.23),
    "32 x 1,024": (StepWork.decode(32, 1024), 4.10),
    "64 x 1,024": (StepWork.decode(64, 1024), 5.48),
    "128 x 1,024": (StepWork.decode(128, 1024), 8.14),
    "256 x 1,024": (StepWork.decode(256, 1024), 13.6),
    "1 x 32,768": (StepWork.decode(1, 32_768), 3.78),
    "8 x 8,192": (StepWork.decode(8, 8192), 5.55),
    "prompt of 128": (StepWork.prefill(0, 128), 3.9),
    "prompt of 1,024": (StepWork.prefill(0, 1024), 13.9),
    "prompt of 4,096": (StepWork.prefill(0, 4096), 58.5),
    "12,288 + 4,096": (StepWork.prefill(12_288, 4096), 109.7),
}
"""A step's device time in ms; of prompts with their host's."""
