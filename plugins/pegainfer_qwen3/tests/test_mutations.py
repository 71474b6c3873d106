"""The parity tests have teeth: each of these mistakes must fail the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from pegainfer_core.backend import DType
from pegainfer_core.backend.numpy.numpy_ops import NumpyOps
from pegainfer_core.weights import rope_config
from plugins.pegainfer_qwen3.tests.stepper import Stepper
from tests.hf import gate, golden

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.backend import (
        AttentionShape,
        Batch,
        KvPool,
        RopeTable,
        Tensor,
        Workspace,
    )
    from plugins.pegainfer_qwen3.tests.conftest import Checkpoints


class NoRope(NumpyOps):
    def rope(
        self, batch: Batch, x: Tensor, num_heads: int, head_dim: int, table: RopeTable
    ) -> None:
        pass


class InterleavedRope(NumpyOps):
    """Pairs (2i, 2i + 1) in place of (i, i + d / 2)."""

    def rope(
        self, batch: Batch, x: Tensor, num_heads: int, head_dim: int, table: RopeTable
    ) -> None:
        values = _array(x)[: batch.num_tokens, : num_heads * head_dim]
        heads = values.reshape(batch.num_tokens, num_heads, head_dim)
        order = np.concatenate([np.arange(0, head_dim, 2), np.arange(1, head_dim, 2)])
        heads[...] = heads[..., order]
        super().rope(batch, x, num_heads, head_dim, table)


class NoHeadNorm(NumpyOps):
    def head_norm(self, count: int, x: Tensor, weight: Tensor, eps: float) -> None:
        pass


class EpsOutsideTheRoot(NumpyOps):
    def rms_norm(self, count: int, x: Tensor, weight: Tensor, eps: float, out: Tensor) -> None:
        super().rms_norm(count, x, weight, eps**2, out)


class NoAttentionInLayer1(NumpyOps):
    def attend(
        self,
        batch: Batch,
        qkv: Tensor,
        shape: AttentionShape,
        kv: KvPool,
        layer: int,
        attended: Tensor,
        workspace: Workspace,
    ) -> None:
        super().attend(batch, qkv, shape, kv, layer, attended, workspace)
        if layer == 1:
            _array(attended).fill(0)


class WrongKvHead(NumpyOps):
    """Query head j reads key/value head j modulo their number."""

    def attend(
        self,
        batch: Batch,
        qkv: Tensor,
        shape: AttentionShape,
        kv: KvPool,
        layer: int,
        attended: Tensor,
        workspace: Workspace,
    ) -> None:
        heads = _array(qkv)[:, : shape.query_width].reshape(len(_array(qkv)), shape.num_heads, -1)
        order = np.arange(shape.num_heads).reshape(-1, shape.num_kv_heads).T.reshape(-1)
        heads[...] = heads[:, order]
        super().attend(batch, qkv, shape, kv, layer, attended, workspace)
        result = _array(attended).reshape(len(_array(attended)), shape.num_heads, -1)
        result[...] = result[:, np.argsort(order)]


class LateKeys(NumpyOps):
    """Each token's slot gets the key and value of the token before it."""

    def kv_write(
        self, batch: Batch, qkv: Tensor, shape: AttentionShape, kv: KvPool, layer: int
    ) -> None:
        stored = _array(qkv)[: batch.num_tokens, shape.query_width :]
        stored[1:] = stored[:-1].copy()
        super().kv_write(batch, qkv, shape, kv, layer)


def _array(tensor: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    assert isinstance(tensor.storage, np.ndarray)
    return tensor.storage


def faults(stepper: Stepper, case: str) -> list[str]:
    found: list[str] = []
    for prompt in golden.load(case).prompts.values():
        found += gate.compare(stepper.logits(prompt.prompt), prompt).faults
    return found


@pytest.mark.parametrize(
    ("ops", "case"),
    [
        (NoRope, "gqa2"),
        (NoRope, "bf16"),
        (InterleavedRope, "gqa2"),
        (NoHeadNorm, "gqa2"),
        (NoHeadNorm, "bf16"),
        (EpsOutsideTheRoot, "tied"),
        (EpsOutsideTheRoot, "bf16_tied"),
        (NoAttentionInLayer1, "gqa2"),
        (NoAttentionInLayer1, "bf16"),
        (WrongKvHead, "gqa2"),
        (LateKeys, "gqa2"),
    ],
)
def test_wrong_ops_fail_the_gate(
    ops: Callable[[], NumpyOps], case: str, checkpoints: Checkpoints
) -> None:
    assert faults(Stepper(checkpoints[case], ops=ops()), case)


@pytest.mark.parametrize("case", ["gqa2", "bf16"])
@pytest.mark.parametrize("part", ["head_norm", "input_norm"])
def test_norm_weights_of_one_fail_the_gate(case: str, part: str, checkpoints: Checkpoints) -> None:
    stepper = Stepper(checkpoints[case])
    for layer in stepper.weights.layers:
        _array(getattr(layer.attention, part)).fill(1)
    assert faults(stepper, case)


def test_yarn_taken_for_plain_rope_fails_the_gate(checkpoints: Checkpoints) -> None:
    plain = rope_config({"rope_theta": 1e6, "max_position_embeddings": 4096}, 32)
    stepper = Stepper(checkpoints["yarn"])
    table = stepper.backend.rope_table(plain, 512, DType.FLOAT32)

    class PlainRope(NumpyOps):
        def rope(
            self, batch: Batch, x: Tensor, num_heads: int, head_dim: int, table_: RopeTable
        ) -> None:
            super().rope(batch, x, num_heads, head_dim, table)

    assert not faults(stepper, "yarn")
    assert faults(Stepper(checkpoints["yarn"], ops=PlainRope()), "yarn")
