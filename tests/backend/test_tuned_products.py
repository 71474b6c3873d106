"""Measured products are remembered by shape, and a damaged memory only costs measuring again."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from pegainfer_core.backend import AttentionShape, DType
from pegainfer_core.backend.cuda.product_shape import ProductShape
from pegainfer_core.backend.cuda.tuned_products import (
    TUNED_ROWS,
    TunedProducts,
    decoder_products,
    tuned_rows,
)

SHAPE = AttentionShape(num_heads=4, num_kv_heads=2, head_dim=16, scale=1.0, norm_eps=1e-6)
CODE = bytes(range(64))


def shape(rows: int, accumulate: bool = False) -> ProductShape:
    return ProductShape(rows, 128, 96, DType.BFLOAT16, DType.BFLOAT16, accumulate)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [(1, 8), (9, 16), (300, 512), (512, 512), (513, 1024), (4096, 4096), (20000, 8192)],
)
def test_sizes_stand_for_those_below(rows: int, expected: int) -> None:
    assert tuned_rows(rows) == expected


def test_measurements_survive(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "products.json"
    TunedProducts(path).store({shape(1024): CODE})
    again = TunedProducts(path)
    assert again.get(shape(1000)) == CODE
    assert again.get(shape(2000)) is None
    assert again.get(shape(1000, accumulate=True)) is None
    assert again.get(shape(8)) is None
    assert again.missing([shape(1024), shape(2048)]) == [shape(2048)]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"a": 1}', b"\xff\x00"])
def test_a_damaged_file_counts_as_none(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "products.json"
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        tuned = TunedProducts(path)
    assert str(path) in caplog.text
    assert tuned.missing([shape(1024)])
    tuned.store({shape(1024): CODE})
    assert not TunedProducts(path).missing([shape(1024)])


def test_a_folder_that_cannot_be_written_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    tuned = TunedProducts(tmp_path / "file" / "products.json")
    tuned.store({shape(512): CODE})
    assert "cannot be written" in caplog.text
    assert tuned.get(shape(512)) == CODE


def test_a_decoder_has_four_products_of_each_size() -> None:
    shapes = decoder_products(SHAPE, hidden=64, intermediate=96)
    assert len(shapes) == 4 * len(TUNED_ROWS)
    assert {(s.n, s.k, s.accumulate) for s in shapes} == {
        (128, 64, False),
        (64, 64, True),
        (192, 64, False),
        (64, 96, True),
    }
