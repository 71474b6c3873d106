"""Which products of few rows run on our own kernel, and what their variants ask of a device."""

from __future__ import annotations

import pytest

from pegainfer_core.kernels import DecoderSizes, catalog, decoder_specs
from pegainfer_core.kernels.catalog import FEW_ROWS, few_rows, few_rows_split, takes_few_rows

BLOCK_SHARED_BYTES = 227 << 10
WIDTHS = (64, 1024, 2048, 2560, 3072, 4096, 5120, 8192, 9728, 12288, 25600)


@pytest.mark.parametrize("k", WIDTHS)
@pytest.mark.parametrize("norm", [True, False])
def test_one_block_fits_a_multiprocessor_and_no_more(k: int, norm: bool) -> None:
    for rows in FEW_ROWS:
        for gated in {norm, False}:
            spec = few_rows(k, rows, norm=norm, gated=gated, add=not norm)
            assert BLOCK_SHARED_BYTES / 2 < spec.shared_bytes <= BLOCK_SHARED_BYTES


@pytest.mark.parametrize(
    ("k", "norm", "split"),
    [(2560, True, 1), (4096, True, 2), (4096, False, 1), (9728, False, 2), (25600, False, 8)],
)
def test_wide_rows_are_shared(k: int, norm: bool, split: int) -> None:
    assert few_rows_split(k, norm=norm) == split


def test_only_sixteen_rows_take_all_registers() -> None:
    registers = [dict(few_rows(2560, rows, norm=True).constants)["REGISTERS"] for rows in FEW_ROWS]
    assert registers == [112, 112, 255]


def test_what_is_taken() -> None:
    assert takes_few_rows("bf16", 2560, 6144, 90)
    assert not takes_few_rows("fp32", 2560, 6144, 90)
    assert not takes_few_rows("bf16", 2560, 6144, 80)
    assert not takes_few_rows("bf16", 2560, 6147, 90)
    assert not takes_few_rows("bf16", 2568, 6144, 90)
    assert not takes_few_rows("bf16", 1 << 20, 6144, 90)


@pytest.mark.parametrize(("arch", "module"), [(80, "gemv"), (90, "few_rows.cu")])
def test_a_decoder_gets_the_products_of_its_device(arch: int, module: str) -> None:
    sizes = DecoderSizes(
        element="bf16",
        hidden=2560,
        intermediate=9728,
        num_heads=32,
        num_kv_heads=8,
        head_dim=128,
        page_tokens=16,
    )
    specs = decoder_specs(sizes, arch)
    assert {spec.module for spec in specs} & {"gemv", "few_rows.cu"} == {module}
    for rows in FEW_ROWS:
        wanted = catalog.few_rows(9728, rows, add=True)
        assert (wanted in specs) == (module == "few_rows.cu")
