"""Our own products of few rows against NumPy: alone and in one launch, every number of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

from pegainfer_core.backend import AttentionWeights, DType, MlpWeights
from pegainfer_core.kernels import catalog
from tests.gpu.pair import Pair, Split, Step, attention_shape, kv_layout
from tests.gpu.test_ops import rope_pair

if TYPE_CHECKING:
    from pegainfer_core.backend.cuda import CudaBackend
    from tests.gpu.pair import Both

pytestmark = pytest.mark.gpu

ROOM = 80


class Sizes(NamedTuple):
    """Of a layer: hidden and intermediate width, query heads, key heads, channels of a head."""

    hidden: int
    inner: int
    num_heads: int
    num_kv_heads: int
    head_dim: int


ODD = Sizes(hidden=384, inner=1408, num_heads=6, num_kv_heads=2, head_dim=64)
QWEN3_4B = Sizes(hidden=2560, inner=9728, num_heads=32, num_kv_heads=8, head_dim=128)
QWEN3_8B = Sizes(hidden=4096, inner=12288, num_heads=32, num_kv_heads=8, head_dim=128)


class Layer:
    """Random parameters and rows, and the ops between two attentions."""

    def __init__(self, pair: Pair, sizes: Sizes) -> None:
        self.pair, self.sizes = pair, sizes
        self.shape = attention_shape(*sizes[2:])
        hidden, inner, query = sizes.hidden, sizes.inner, self.shape.query_width
        self.out = self._matrix(hidden, query)
        self.gate_up = self._matrix(2 * inner, hidden)
        self.down = self._matrix(hidden, inner)
        self.qkv_weight = self._matrix(self.shape.qkv_width, hidden)
        self.mlp_norm = pair.random_tensor(hidden, scale=0.2, center=1)
        self.qkv_norm = pair.random_tensor(hidden, scale=0.2, center=1)
        heads = sizes.num_heads + sizes.num_kv_heads
        self.head_norm = pair.random_tensor(heads, sizes.head_dim, scale=0.2, center=1)
        self.attended = pair.random_tensor(ROOM, query)
        self.hidden = pair.random_tensor(ROOM, hidden)
        self.activated = pair.random_tensor(ROOM, inner)
        self.qkv = pair.poison(ROOM, self.shape.qkv_width)

    def step(self, count: int) -> Step:
        """Decoding rows."""
        layout = kv_layout(self.shape, 16, self.pair.dtype)
        return Step(self.pair, layout, tuple((1 + 7 * i, 1) for i in range(count)))

    def add_out(self, step: Step) -> Both:
        self.pair.both(
            "out_proj_add", step.batch(), self.attended, self.out, self.hidden,
            self.pair.workspace(),
        )  # fmt: skip
        return self.hidden

    def gate(self, step: Step) -> Both:
        weights = Split(*(
            MlpWeights(
                *(getattr(item, side) for item in (self.mlp_norm, self.gate_up, self.down)), 1e-6
            )
            for side in ("numpy", "cuda")
        ))  # fmt: skip
        self.pair.both(
            "norm_gate_up_act", step.batch(), self.hidden, weights, self.activated,
            self.pair.workspace(),
        )  # fmt: skip
        return self.activated

    def add_down(self, step: Step) -> Both:
        self.pair.both(
            "down_add", step.batch(), self.activated, self.down, self.hidden, self.pair.workspace()
        )
        return self.hidden

    def project(self, step: Step) -> Both:
        """The product alone: with more than 64 decoding rows, heads are prepared by it too."""
        names = (self.qkv_norm, self.qkv_weight, self.head_norm, self.out)
        weights = Split(*(
            AttentionWeights(*(getattr(item, side) for item in names)) for side in ("numpy", "cuda")
        ))  # fmt: skip
        rope = rope_pair(self.pair, self.sizes.head_dim)
        batch, kv, workspace = step.batch(), step.kv(), self.pair.workspace()
        self.pair.both(
            "norm_qkv_rope_write", batch, self.hidden, weights, self.shape, rope, kv, 1, self.qkv,
            workspace,
        )  # fmt: skip
        attended = self.pair.poison(ROOM, self.shape.query_width)
        self.pair.both("attend", batch, self.qkv, self.shape, kv, 1, attended, workspace)
        return attended

    def _matrix(self, n: int, k: int) -> Both:
        return self.pair.random_tensor(n, k, scale=k**-0.5)


@pytest.fixture(autouse=True)
def own_products(cuda: CudaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the default is."""
    most = catalog.LAYER_ROWS[-1]
    monkeypatch.setattr(cuda.ops.layer_products, "max_rows", most)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def odd(cuda: CudaBackend) -> Layer:
    return Layer(Pair(cuda, DType.BFLOAT16, 7), ODD)


@pytest.mark.parametrize("count", range(1, 65))
def test_each_product(odd: Layer, count: int) -> None:
    step = odd.step(count)
    for product in (odd.add_out, odd.gate, odd.add_down, odd.project):
        odd.pair.check(product(step), count)


@pytest.mark.parametrize("count", range(1, 65))
def test_all_in_one_launch(odd: Layer, count: int) -> None:
    step = odd.step(count)
    odd.add_out(step)
    odd.gate(step)
    odd.add_down(step)
    odd.pair.check(odd.project(step), count)
    odd.pair.check(odd.hidden, count)
    odd.pair.check(odd.activated, count)


@pytest.fixture(scope="module", params=[QWEN3_4B, QWEN3_8B], ids=["4B", "8B"])
def released(request: pytest.FixtureRequest, cuda: CudaBackend) -> Layer:
    return Layer(Pair(cuda, DType.BFLOAT16, 11), request.param)


@pytest.mark.parametrize("count", [1, 5, 16, 31])
def test_released_sizes(released: Layer, count: int) -> None:
    step = released.step(count)
    released.add_out(step)
    released.gate(step)
    released.add_down(step)
    released.pair.check(released.project(step), count)
    released.pair.check(released.hidden, count)


@pytest.mark.parametrize("most", catalog.LAYER_ROWS)
def test_a_row_does_not_depend_on_the_others(odd: Layer, most: int) -> None:
    start = odd.pair.cuda.to_host(odd.hidden.cuda, ROOM)
    found = []
    for count in (most, most - 1, most // 2 + 1):
        odd.hidden = odd.pair.tensor(start.copy())
        step = odd.step(count)
        odd.add_out(step)
        odd.gate(step)
        odd.add_down(step)
        found.append(odd.pair.cuda.to_host(odd.hidden.cuda, count))
    for values in found[1:]:
        np.testing.assert_array_equal(values, found[0][: len(values)])


def test_rows_behind_the_last_are_left_alone(odd: Layer) -> None:
    before = odd.pair.cuda.to_host(odd.hidden.cuda, ROOM)
    odd.add_out(odd.step(11))
    after = odd.pair.cuda.to_host(odd.hidden.cuda, ROOM)
    np.testing.assert_array_equal(after[11:], before[11:])
    assert (after[:11] != before[:11]).any()
