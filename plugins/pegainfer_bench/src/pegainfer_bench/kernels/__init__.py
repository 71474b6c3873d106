"""Times a decoder's ops through a backend's public face, against the device's own limits."""

from pegainfer_bench.kernels.cases import Case, Cases
from pegainfer_bench.kernels.decoder import DecoderBench
from pegainfer_bench.kernels.limits import DeviceLimits, measure_limits
from pegainfer_bench.kernels.sizes import QWEN3_4B, DecoderSizes

__all__ = [
    "QWEN3_4B",
    "Case",
    "Cases",
    "DecoderBench",
    "DecoderSizes",
    "DeviceLimits",
    "measure_limits",
]
