"""Weights in another memory order are the same weights."""

import numpy as np
import pytest

from pegainfer_core.backend import DType, NumpyBackend
from pegainfer_core.backend.numpy import matrix_order
from pegainfer_core.backend.numpy.matrix_order import in_product_order
from pegainfer_core.weights import ArraySource, ParameterLoader, TensorSpec

BACKEND = NumpyBackend()


def random(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(4096, 3), (4500, 130), (5000, 64), (4097, 1)])
def test_many_rows_are_held_by_columns(shape: tuple[int, int]) -> None:
    values = random(*shape)
    turned = in_product_order(values)
    assert turned.flags.f_contiguous
    np.testing.assert_array_equal(turned, values)


def test_others_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_order, "MAX_BYTES", 100_000)
    for values in (random(4095, 3), random(5000), random(5000, 6)):
        assert in_product_order(values) is values


@pytest.mark.parametrize("count", [1, 2, 4, 5, 9])
def test_products_are_equal_in_both_orders(count: int) -> None:
    stored = {"up": random(2100, 40), "gate": random(2100, 40)}
    loader = ParameterLoader(
        ArraySource(stored),
        {name: TensorSpec(values.shape) for name, values in stored.items()},
        dtype="float32",
    )
    weight = BACKEND.load(loader, ["gate", "up"], DType.FLOAT32)
    held = BACKEND.to_host(weight, 4200)
    assert held.flags.f_contiguous
    by_rows = np.concatenate([stored["gate"], stored["up"]])
    np.testing.assert_array_equal(held, by_rows)
    x = random(9, 40)
    out = BACKEND.empty((9, 4200), DType.FLOAT32)
    BACKEND.ops.linear(count, BACKEND.adopt(x, DType.FLOAT32), weight, out)
    expected = x[:count].astype(np.float64) @ by_rows.T
    np.testing.assert_allclose(BACKEND.to_host(out, count), expected, atol=1e-4)
