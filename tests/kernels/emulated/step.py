"""A random step in host memory, laid out as on a device, and its attention in plain NumPy."""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING

import numpy as np

from pegainfer_core.weights import round_floats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float32]
    HalfArray = NDArray[np.uint16]

LAYERS, LAYER = 2, 1
EPS = 1e-6
NOT_A_NUMBER = 0x7FC0


class TensorMap(ctypes.Structure):
    """As `simt.h` reads it."""

    _fields_ = (
        ("base", ctypes.c_void_p),
        ("sizes", ctypes.c_long * 5),
        ("strides", ctypes.c_long * 5),
        ("box", ctypes.c_int * 5),
    )


class EmulatedStep:
    """Rows of (context, query tokens) on pages in random order.

    What lies in a row's last page behind its context is not a number.

    Args:
        heads: Query heads, key heads, channels.
        page_tokens: Tokens in a page.
        rows: Of the step.
        seed: Of everything random.
    """

    def __init__(
        self,
        heads: tuple[int, int, int],
        page_tokens: int,
        rows: Sequence[tuple[int, int]],
        seed: int,
    ) -> None:
        self.num_heads, self.num_kv_heads, self.head_dim = heads
        self.page_tokens, self.rows = page_tokens, rows
        self.group = self.num_heads // self.num_kv_heads
        self.random = np.random.default_rng(seed)
        counts = [-(-context // page_tokens) for context, _ in rows]
        self.page_starts = np.cumsum([0, *counts])[:-1].astype(np.int32)
        self.table = (self.random.permutation(sum(counts)) + 1).astype(np.int32)
        self.row_starts = np.cumsum([0, *(count for _, count in rows)]).astype(np.int32)
        self.contexts = np.array([context for context, _ in rows], np.int32)
        self.num_tokens = int(self.row_starts[-1])
        self.width = (self.num_heads + 2 * self.num_kv_heads) * self.head_dim
        self.pages = self.halves(
            sum(counts) + 1, LAYERS, 2, page_tokens, self.num_kv_heads, self.head_dim
        )
        self.qkv = self.halves(self.num_tokens, self.width)
        for row, context in enumerate(self.contexts.tolist()):
            inside = context % page_tokens
            if inside:
                self.pages[self.table_of(row)[-1], :, :, inside:] = NOT_A_NUMBER

    def halves(self, *shape: int, scale: float = 1.0, center: float = 0.0) -> HalfArray:
        """Random bfloat16 values, as the device holds them."""
        return to_halves(self.random.standard_normal(shape) * scale + center)

    def table_of(self, row: int) -> NDArray[np.int32]:
        """Pages of a row."""
        begin = int(self.page_starts[row])
        return self.table[begin : begin + -(-self.rows[row][0] // self.page_tokens)]

    def page_map(self, tokens: int) -> TensorMap:
        """Boxes of so many tokens of a page."""
        dim, heads = self.head_dim, self.num_kv_heads
        token = dim * heads
        return _tensor_map(
            self.pages,
            (dim, heads, self.page_tokens, 2 * LAYERS, len(self.pages)),
            (1, dim, token, self.page_tokens * token, 2 * LAYERS * self.page_tokens * token),
            (64, 1, tokens),
        )

    def query_map(self, tokens: int) -> TensorMap:
        """Boxes of the heads of a key head, of so many tokens."""
        return _tensor_map(
            self.qkv,
            (self.head_dim, self.num_heads, self.num_tokens),
            (1, self.head_dim, self.width),
            (64, self.group, tokens),
        )

    def heads(self) -> FloatArray:
        """[tokens, query, key and value heads, channels]."""
        return to_floats(self.qkv).reshape(self.num_tokens, -1, self.head_dim)

    def attended(self, queries: FloatArray, pages: HalfArray) -> FloatArray:
        """Attention of queries [tokens, heads, channels] over what pages hold."""
        scale = self.head_dim**-0.5
        out = []
        for row, (context, count) in enumerate(self.rows):
            stored = to_floats(pages[self.table_of(row), LAYER])
            keys, values = (
                stored[:, plane].reshape(-1, self.num_kv_heads, self.head_dim)[:context]
                for plane in (0, 1)
            )
            begin = int(self.row_starts[row])
            mine = queries[begin : begin + count].reshape(
                count, self.num_kv_heads, self.group, self.head_dim
            )
            scores = np.einsum("nkgd,ckd->nkgc", mine, keys) * scale
            hidden = np.arange(context) > (context - count + np.arange(count))[:, None]
            scores = np.where(hidden[:, None, None, :], -np.inf, scores)
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            out.append(np.einsum("nkgc,ckd->nkgd", weights, values).reshape(count, -1))
        return np.concatenate(out).astype(np.float32)

    @property
    def scale(self) -> float:
        """What kernels multiply dot products by, for powers of two."""
        return self.head_dim**-0.5 * math.log2(math.e)


def to_halves(values: NDArray[np.floating]) -> HalfArray:
    """Round to bfloat16."""
    dense = np.ascontiguousarray(values, np.float32)
    round_floats(dense, "bfloat16")
    return (dense.view(np.uint32) >> 16).astype(np.uint16)


def to_floats(halves: HalfArray) -> FloatArray:
    """Widen bfloat16."""
    return (halves.astype(np.uint32) << 16).view(np.float32)


def _tensor_map(
    values: HalfArray, sizes: Sequence[int], strides: Sequence[int], box: Sequence[int]
) -> TensorMap:
    return TensorMap(
        values.ctypes.data,
        (ctypes.c_long * 5)(*sizes),
        (ctypes.c_long * 5)(*strides),
        (ctypes.c_int * 5)(*box),
    )
