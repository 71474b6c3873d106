"""The kernel of a layer's products against NumPy, on the host: needs g++, no GPU.

Shows that its indices, its barriers and its stream of weights are right; not what a GPU's memory
does to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from pegainfer_core.kernels import catalog
from pegainfer_core.kernels.catalog import LayerWidths
from pegainfer_core.weights import round_floats
from tests.kernels.layer_on_host import run_layer

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

HIDDEN, QUERY, INNER, QKV = 256, 256, 768, 384
ROOM = 40
EPSILONS = (1e-6, 1e-5)
ALL = LayerWidths(hidden=HIDDEN, query=QUERY, inner=INNER, qkv=QKV, gate_up=True, down=True)
FIRST = LayerWidths(hidden=HIDDEN, qkv=QKV)


def rounded(values: NDArray[np.floating]) -> Floats:
    held = values.astype(np.float32)
    round_floats(held, "bfloat16")
    return held


def halves(values: Floats) -> NDArray[np.uint16]:
    return np.ascontiguousarray(values.view(np.uint16).reshape(*values.shape, 2)[..., 1])


def widened(values: NDArray[np.uint16]) -> Floats:
    return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)


def normed(x: Floats, weight: Floats, eps: float) -> Floats:
    factor = 1 / np.sqrt(np.mean(x.astype(np.float64) ** 2, axis=1, keepdims=True) + eps)
    return rounded(rounded(x * factor) * weight)


def times(x: Floats, weight: Floats) -> NDArray[np.float64]:
    return x.astype(np.float64) @ weight.T.astype(np.float64)


class Layer:
    """Random inputs, and what should become of the first rows."""

    def __init__(self, widths: LayerWidths, num_rows: int) -> None:
        random = np.random.default_rng()
        self.widths, self.num_rows = widths, num_rows

        def drawn(*shape: int, scale: float = 1.0, center: float = 0.0) -> Floats:
            return rounded(random.standard_normal(shape) * scale + center)

        self.rows = [drawn(ROOM, width) for width in (QUERY, HIDDEN, INNER, QKV)]
        shapes = ((HIDDEN, QUERY), (2 * INNER, HIDDEN), (HIDDEN, INNER), (QKV, HIDDEN))
        self.weights = [drawn(n, k, scale=k**-0.5) for n, k in shapes]
        self.norms = [drawn(HIDDEN, scale=0.2, center=1) for _ in range(2)]

    def expected(self) -> list[Floats]:
        attended, hidden, activated, qkv = (rows[: self.num_rows] for rows in self.rows)
        out, gate_up, down, project = self.weights
        if self.widths.query:
            hidden = rounded(hidden + times(attended, out))
        if self.widths.gate_up:
            both = rounded(times(normed(hidden, self.norms[0], EPSILONS[0]), gate_up))
            gate, up = both[:, :INNER], both[:, INNER:]
            activated = rounded(rounded(gate / (1 + np.exp(-gate))) * up)
        if self.widths.down:
            hidden = rounded(hidden + times(activated, down))
        if self.widths.qkv:
            qkv = rounded(times(normed(hidden, self.norms[1], EPSILONS[1]), project))
        return [hidden, activated, qkv]


@pytest.mark.parametrize(
    ("widths", "num_rows", "num_clusters"),
    [(ALL, 5, 2), (ALL, 11, 2), (ALL, 19, 1), (FIRST, 8, 3)],
    ids=["8 rows", "16 rows", "32 rows", "QKV alone"],
)
def test_a_launch(widths: LayerWidths, num_rows: int, num_clusters: int, tmp_path: Path) -> None:
    layer = Layer(widths, num_rows)
    arrays = [halves(values) for values in (*layer.rows, *layer.weights, *layer.norms)]
    before = [array.copy() for array in arrays]
    spec = catalog.layer_products(widths, num_rows, 90)
    run_layer(spec, tmp_path, num_clusters, arrays, num_rows, EPSILONS)
    for found, expected in zip(arrays[1:4], layer.expected(), strict=True):
        difference = widened(found[:num_rows]) - expected
        assert np.linalg.norm(difference) <= 3e-3 * np.linalg.norm(expected)
    for index, (array, old) in enumerate(zip(arrays, before, strict=True)):
        untouched = slice(num_rows, None) if 1 <= index <= 3 else slice(None)
        np.testing.assert_array_equal(array[untouched], old[untouched])
