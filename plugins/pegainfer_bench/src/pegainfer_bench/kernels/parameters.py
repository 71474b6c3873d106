"""Random parameters of a decoder, enough copies of each that no cache keeps them between calls."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pegainfer_core.backend import AttentionWeights, MlpWeights
from pegainfer_core.weights import DummyCheckpoint, ParameterLoader, TensorSpec

if TYPE_CHECKING:
    from pegainfer_bench.kernels.sizes import DecoderSizes
    from pegainfer_core.backend import Backend, DType, Tensor

MAX_COPIES = 64


@dataclass(frozen=True)
class Parameters:
    """Copies of a layer's parameters, and the head.

    Attributes:
        attention: Layer by layer.
        mlp: Likewise.
        norm: [hidden].
        heads: [vocab, hidden] each.
    """

    attention: list[AttentionWeights]
    mlp: list[MlpWeights]
    norm: Tensor
    heads: list[Tensor]


def num_copies(values: float, value_bytes: int, rotate_bytes: int) -> int:
    """Copies of so many values that fill the bytes to cycle through."""
    return max(1, min(MAX_COPIES, math.ceil(rotate_bytes / (values * value_bytes))))


def load_parameters(
    backend: Backend, sizes: DecoderSizes, dtype: DType, value_bytes: int, rotate_bytes: int
) -> Parameters:
    """Load dummy weights the way an engine loads them."""
    shape = sizes.shape
    norms = {
        "input_norm": (sizes.hidden,),
        "head_norm": (sizes.num_heads + sizes.num_kv_heads, sizes.head_dim),
        "mlp_norm": (sizes.hidden,),
    }
    matrices = {
        "head": (sizes.vocab_size, sizes.hidden),
        "qkv": (shape.qkv_width, sizes.hidden),
        "out": (sizes.hidden, shape.query_width),
        "gate_up": (2 * sizes.intermediate, sizes.hidden),
        "down": (sizes.hidden, sizes.intermediate),
    }
    copies = {
        name: num_copies(rows * columns, value_bytes, rotate_bytes)
        for name, (rows, columns) in matrices.items()
    }
    specs = {name: TensorSpec(extents, "norm") for name, extents in norms.items()}
    specs["norm"] = TensorSpec((sizes.hidden,), "norm")
    for name, extents in matrices.items():
        specs |= {f"{name}.{copy}": TensorSpec(extents) for copy in range(copies[name])}
    with DummyCheckpoint(specs, seed=0, dtype=dtype.value) as source:
        loader = ParameterLoader(source, specs, dtype=dtype.value)
        backend.begin_loading(loader)
        held = {name: backend.load(loader, [name], dtype) for name in specs}
        backend.end_loading()

    def copy(name: str, index: int) -> Tensor:
        return held[f"{name}.{index % copies[name]}"]

    attention = [
        AttentionWeights(held["input_norm"], copy("qkv", i), held["head_norm"], copy("out", i))
        for i in range(max(copies["qkv"], copies["out"]))
    ]
    mlp = [
        MlpWeights(held["mlp_norm"], copy("gate_up", i), copy("down", i), sizes.norm_eps)
        for i in range(max(copies["gate_up"], copies["down"]))
    ]
    heads = [copy("head", i) for i in range(copies["head"])]
    return Parameters(attention, mlp, held["norm"], heads)
