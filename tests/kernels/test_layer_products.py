"""Which ops end up in one launch; nothing waits forever. Needs neither GPU nor compiler."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from pegainfer_core.backend import DType, MlpWeights
from pegainfer_core.backend.cuda.layer_products import LayerProducts
from pegainfer_core.backend.tensor import Tensor

if TYPE_CHECKING:
    from pegainfer_core.kernels import KernelSpec

OUT, GATE_UP, DOWN, QKV = 1, 2, 4, 8


class FakeDevice:
    """Hands out addresses."""

    arch = 90
    stream = 5

    def __init__(self) -> None:
        self.filled: list[int] = []
        self._next = 1 << 20

    def allocate(self, num_bytes: int) -> FakeMemory:
        self._next += 1 << 20
        return FakeMemory(self._next)

    def fill(self, target: int, value: int, num_bytes: int) -> None:
        self.filled.append(target)


@dataclass
class FakeMemory:
    address: int


@dataclass
class FakeLibrary:
    """Writes launches down."""

    launches: list[tuple[int, tuple[Any, ...]]] = field(default_factory=list)

    def get(self, spec: KernelSpec) -> FakeKernel:
        return FakeKernel(self, dict(spec.constants)["PRODUCTS"])


@dataclass
class FakeKernel:
    library: FakeLibrary
    products: int

    def num_clusters(self, size: int) -> int:
        return 32

    def launch(self, stream: int, grid: tuple[int, int], *arguments: Any) -> None:
        self.library.launches.append((self.products, (grid, *arguments)))


class Layer:
    """Tensors of a layer and the ops on them."""

    def __init__(self, dtype: DType = DType.BFLOAT16, hidden: int = 512) -> None:
        self.device, self.library = FakeDevice(), FakeLibrary()
        self.products = LayerProducts(self.device, self.library)  # type: ignore[arg-type]
        self.products.max_rows = 32
        self.dtype = dtype
        sizes = {"attended": 1024, "hidden": hidden, "activated": 1536, "qkv": 768, "weight": 64}
        self.made = {name: self.tensor(width) for name, width in sizes.items()}

    def tensor(self, width: int) -> Tensor:
        return Tensor((64, width), self.dtype, self.device.allocate(1))

    def out(self, count: int = 4) -> bool:
        made = self.made
        return self.products.add_out(count, made["attended"], made["weight"], made["hidden"])

    def gate_up(self, count: int = 4) -> bool:
        made = self.made
        weights = MlpWeights(made["weight"], made["weight"], made["weight"], 1e-6)
        return self.products.add_gate_up(count, made["hidden"], weights, made["activated"])

    def down(self, count: int = 4) -> bool:
        made = self.made
        return self.products.add_down(count, made["activated"], made["weight"], made["hidden"])

    def qkv(self, count: int = 4) -> bool:
        made, weight = self.made, self.made["weight"]
        return self.products.add_qkv(count, made["hidden"], weight, 1e-5, weight, made["qkv"])

    @property
    def launched(self) -> list[int]:
        return [products for products, _ in self.library.launches]


def test_all_between_two_attentions_is_one_launch() -> None:
    layer = Layer()
    assert layer.out() and layer.gate_up() and layer.down()
    assert layer.launched == []
    assert layer.qkv()
    assert layer.launched == [OUT + GATE_UP + DOWN + QKV]
    (_, (grid, *arguments)) = layer.library.launches[0]
    made = layer.made
    assert grid == (128, 1)
    assert arguments[:4] == [
        made[name].storage.address for name in ("attended", "hidden", "activated", "qkv")
    ]
    assert arguments[11:] == [4, 1e-6, 1e-5]
    assert arguments[10] in layer.device.filled


def test_what_is_left_is_launched_when_asked_and_only_once() -> None:
    layer = Layer()
    assert layer.gate_up() and layer.down()
    layer.products.launch()
    layer.products.launch()
    assert layer.launched == [GATE_UP + DOWN]


def test_another_order_or_other_rows_make_launches_of_their_own() -> None:
    layer = Layer()
    layer.down()
    layer.gate_up()
    layer.gate_up()
    layer.down(5)
    layer.products.launch()
    assert layer.launched == [DOWN, GATE_UP, GATE_UP, DOWN]


def test_tensors_that_do_not_belong_together() -> None:
    layer = Layer()
    layer.gate_up()
    layer.made["activated"] = layer.tensor(1536)
    layer.down()
    layer.made["hidden"] = layer.tensor(512)
    layer.qkv()
    assert layer.launched == [GATE_UP, DOWN, QKV]


@pytest.mark.parametrize(
    ("layer", "count"),
    [(Layer(), 33), (Layer(DType.FLOAT32), 1), (Layer(hidden=96), 1)],
    ids=["rows", "type", "width"],
)
def test_what_does_not_fit_is_left_to_others(layer: Layer, count: int) -> None:
    assert not (layer.out(count) or layer.gate_up(count) or layer.down(count) or layer.qkv(count))
    layer.products.launch()
    assert layer.launched == []


def test_what_waits_goes_before_what_does_not_fit() -> None:
    layer = Layer()
    assert layer.out(32)
    assert not layer.gate_up(33)
    assert layer.launched == [OUT]
