"""CUDA C++ kernels on the host, fiber by fiber."""

from __future__ import annotations

from tests.kernels.emulated.kernels import decode_pages, few_rows, more_rows, prefill_wgmma
from tests.kernels.emulated.products import PRODUCT_KINDS, check_product
from tests.kernels.emulated.step import EmulatedStep

__all__ = [
    "PRODUCT_KINDS",
    "EmulatedStep",
    "check_product",
    "decode_pages",
    "few_rows",
    "more_rows",
    "prefill_wgmma",
]
