"""CUDA C++ kernels on the host, fiber by fiber."""

from __future__ import annotations

from tests.kernels.emulated.kernels import (
    decode_pages,
    few_rows,
    prefill_wgmma,
    scan_pieces,
)
from tests.kernels.emulated.step import EmulatedStep

__all__ = ["EmulatedStep", "decode_pages", "few_rows", "prefill_wgmma", "scan_pieces"]
