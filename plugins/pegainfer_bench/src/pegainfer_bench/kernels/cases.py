"""What is timed: each op of a decoder at the sizes asked for, with the bytes and FLOPs it takes.

Bytes are those that must cross the memory bus once: parameters, keys and values, activations in
and out. An op of a layer is called for one copy of its parameters after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pegainfer_bench.kernels.parameters import num_copies
from pegainfer_core.backend import DType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pegainfer_bench.kernels.decoder import DecoderBench
    from pegainfer_core.backend import Batch, KvPool, StepMetadata

MIN_CALLS: Final = 2
_MAX_FLOPS: Final = {"cuda": 1e12, "numpy": 1e10}
"""Of the calls that are timed as one run, where two calls are not more already."""


@dataclass(frozen=True)
class Case:
    """One op at one size.

    Attributes:
        op: Name.
        size: Of the step, for people.
        num_bytes: That one call must move.
        flops: That one call must do.
        metadata: Of the step.
        num_calls: That `work` makes.
        work: Makes them.
    """

    op: str
    size: str
    num_bytes: float
    flops: float
    metadata: StepMetadata
    num_calls: int
    work: Callable[[Batch], None]


class Cases:
    """Cases of one decoder.

    Args:
        bench: The decoder.
    """

    def __init__(self, bench: DecoderBench) -> None:
        self._bench = bench
        self._ops = bench.backend.ops
        sizes, shape = bench.sizes, bench.shape
        self._weights = {
            "qkv": shape.qkv_width * sizes.hidden,
            "out": sizes.hidden * shape.query_width,
            "gate_up": 2 * sizes.intermediate * sizes.hidden,
            "down": sizes.hidden * sizes.intermediate,
            "head": sizes.vocab_size * sizes.hidden,
        }
        self._activations = {
            "qkv": sizes.hidden + shape.qkv_width,
            "out": shape.query_width + 2 * sizes.hidden,
            "gate_up": sizes.hidden + sizes.intermediate,
            "down": sizes.intermediate + 2 * sizes.hidden,
        }

    def of_rows(self, rows: int) -> Iterator[Case]:
        """Norm, products, head and choice for so many decoding rows."""
        bench, sizes = self._bench, self._bench.sizes
        step = [(1, 1)] * rows
        kv = bench.pool(step)
        size = f"{rows} rows"
        hidden_bytes = sizes.hidden * bench.value_bytes
        yield self._case("norm", size, step, rows, 2 * rows * hidden_bytes, 0.0, self._norm)
        yield from self._products(size, step, rows, kv)
        logits_bytes = 4 * rows * sizes.vocab_size
        head = self._weights["head"]
        tensors = [
            bench.values(rows, sizes.vocab_size, DType.FLOAT32)
            for _ in range(num_copies(rows * sizes.vocab_size, 4, bench.rotate_bytes))
        ]
        best = bench.backend.empty((rows, 2), DType.FLOAT32)
        # Scratch for logits has as many rows as the logits.
        workspace = bench.backend.workspace(rows, 1)

        def lm_head(batch: Batch, index: int) -> None:
            weights = bench.parameters
            table = weights.heads[index % len(weights.heads)]
            self._ops.lm_head(
                batch, bench.hidden, weights.norm, sizes.norm_eps, table, 0, rows,
                tensors[0], workspace,
            )  # fmt: skip

        def argmax(batch: Batch, index: int) -> None:
            self._ops.argmax(rows, tensors[index % len(tensors)], best, workspace)

        head_bytes = head * bench.value_bytes + logits_bytes + rows * hidden_bytes
        yield self._case("lm_head", size, step, rows, head_bytes, 2.0 * rows * head, lm_head)
        yield self._case("argmax", size, step, rows, logits_bytes, 0.0, argmax)

    def of_attention(self, rows: int, context: int) -> Iterator[Case]:
        """Attention of decoding rows together with the QKV product, and the whole layer.

        The two are timed as one because backends move the work between them, from one to the other.
        """
        step = [(context, 1)] * rows
        kv = self._bench.pool(step)
        size = f"{rows} x {context}"
        per_token = kv.layout.token_layer_bytes
        kv_bytes = rows * context * per_token
        flops = 4.0 * rows * context * self._bench.shape.query_width
        yield from self._attending(size, step, rows, rows, kv, kv_bytes, flops)

    def of_prefill(self, tokens: int) -> Iterator[Case]:
        """Products, attention and the whole layer for one prompt."""
        bench = self._bench
        step = [(tokens, tokens)]
        kv = bench.pool(step)
        size = f"prefill {tokens}"
        yield from self._products(size, step, tokens, kv)
        flops = 2.0 * tokens * (tokens + 1) * bench.shape.query_width
        kv_bytes = tokens * kv.layout.token_layer_bytes
        activations = 2 * tokens * bench.shape.query_width * bench.value_bytes

        def attend(batch: Batch, index: int) -> None:
            layer = index % kv.layout.num_layers
            self._ops.attend(
                batch, bench.qkv, bench.shape, kv, layer, bench.attended, bench.workspace
            )

        yield self._case("attend", size, step, 0, kv_bytes + activations, flops, attend)
        yield from self._attending(size, step, 0, tokens, kv, kv_bytes, flops)

    def _products(
        self, size: str, step: Sequence[tuple[int, int]], tokens: int, kv: KvPool
    ) -> Iterator[Case]:
        bench = self._bench
        calls: dict[str, Callable[[Batch, int], None]] = {
            "qkv": lambda batch, index: self._qkv(batch, index, kv),
            "out": self._out,
            "gate_up": self._gate_up,
            "down": self._down,
        }
        num_decode = len(step) if all(count == 1 for _, count in step) else 0
        for name, call in calls.items():
            weights = self._weights[name]
            activations = tokens * self._activations[name]
            num_bytes = (weights + activations) * bench.value_bytes
            yield self._case(name, size, step, num_decode, num_bytes, 2.0 * tokens * weights, call)

    def _attending(
        self,
        size: str,
        step: Sequence[tuple[int, int]],
        num_decode: int,
        tokens: int,
        kv: KvPool,
        kv_bytes: float,
        flops: float,
    ) -> Iterator[Case]:
        bench = self._bench

        def qkv_attend(batch: Batch, index: int) -> None:
            self._qkv(batch, index, kv)
            layer = index % kv.layout.num_layers
            self._ops.attend(
                batch, bench.qkv, bench.shape, kv, layer, bench.attended, bench.workspace
            )

        def whole_layer(batch: Batch, index: int) -> None:
            qkv_attend(batch, index)
            self._out(batch, index)
            self._gate_up(batch, index)
            self._down(batch, index)

        both: tuple[tuple[str, Sequence[str], Callable[[Batch, int], None]], ...] = (
            ("qkv + attend", ("qkv",), qkv_attend),
            ("layer", ("qkv", "out", "gate_up", "down"), whole_layer),
        )
        for name, products, call in both:
            weights = sum(self._weights[product] for product in products)
            activations = tokens * sum(self._activations[product] for product in products)
            num_bytes = kv_bytes + (weights + activations) * bench.value_bytes
            work_flops = flops + 2.0 * tokens * weights
            yield self._case(name, size, step, num_decode, num_bytes, work_flops, call)

    def _case(
        self,
        op: str,
        size: str,
        step: Sequence[tuple[int, int]],
        num_decode: int,
        num_bytes: float,
        flops: float,
        call: Callable[[Batch, int], None],
    ) -> Case:
        # Together the calls move what the operands are to cycle through, so that no cache helps.
        calls = num_copies(num_bytes, 1, self._bench.rotate_bytes)
        if flops:
            calls = min(calls, int(_MAX_FLOPS[self._bench.backend.name] / flops))
        calls = max(calls, MIN_CALLS)

        def work(batch: Batch) -> None:
            for index in range(calls):
                call(batch, index)

        metadata = self._bench.step(step, num_decode)
        return Case(op, size, num_bytes, flops, metadata, calls, work)

    def _norm(self, batch: Batch, index: int) -> None:
        bench = self._bench
        self._ops.rms_norm(
            batch.num_tokens,
            bench.hidden,
            bench.parameters.norm,
            bench.sizes.norm_eps,
            bench.workspace.buffer("normed", bench.sizes.hidden, bench.dtype),
        )

    def _qkv(self, batch: Batch, index: int, kv: KvPool) -> None:
        bench = self._bench
        weights = bench.parameters.attention[index % len(bench.parameters.attention)]
        layer = index % kv.layout.num_layers
        self._ops.norm_qkv_rope_write(
            batch, bench.hidden, weights, bench.shape, bench.rope, kv, layer, bench.qkv,
            bench.workspace,
        )  # fmt: skip

    def _out(self, batch: Batch, index: int) -> None:
        bench = self._bench
        weights = bench.parameters.attention[index % len(bench.parameters.attention)]
        self._ops.out_proj_add(batch, bench.attended, weights.out, bench.hidden, bench.workspace)

    def _gate_up(self, batch: Batch, index: int) -> None:
        bench = self._bench
        weights = bench.parameters.mlp[index % len(bench.parameters.mlp)]
        self._ops.norm_gate_up_act(batch, bench.hidden, weights, bench.activated, bench.workspace)

    def _down(self, batch: Batch, index: int) -> None:
        bench = self._bench
        weights = bench.parameters.mlp[index % len(bench.parameters.mlp)]
        self._ops.down_add(batch, bench.activated, weights.down, bench.hidden, bench.workspace)
