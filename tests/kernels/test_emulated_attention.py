"""The attention kernels in CUDA C++, run on the host fiber by fiber, against plain NumPy.

Says nothing of speed, or of how a device orders what is not synchronised.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pegainfer_core.backend.cuda.work_items import (
    PrefillLimits,
    decode_items,
    max_split_parts,
    prefill_items,
)
from pegainfer_core.kernels.catalog import DECODE_BLOCK, PREFILL_BLOCK, PREFILL_ROWS, prefill_tile
from tests.kernels.emulated import EmulatedStep, decode_pages, prefill_wgmma
from tests.kernels.emulated.step import (
    EPS,
    LAYER,
    LAYERS,
    NOT_A_NUMBER,
    to_floats,
    to_halves,
)

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float32]

# Compiles each kernel with g++: minutes in all.
pytestmark = pytest.mark.gpu

TOLERANCE = 6e-3
UNUSED = 3
"""Programs of the grid that have no work."""


@pytest.mark.parametrize(
    ("heads", "page_tokens", "half", "contexts", "target"),
    [
        ((4, 1, 128), 16, 64, (1, 2, 15, 16, 17, 63, 64, 65, 127, 129), 12),
        ((10, 2, 128), 16, 64, (700, 3), 16),
        ((16, 1, 64), 32, 16, (300, 33), 3),
    ],
    ids=["borders", "many parts", "part of the channels turn"],
)
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "apart"])
def test_decode_pages(
    heads: tuple[int, int, int],
    page_tokens: int,
    half: int,
    contexts: tuple[int, ...],
    target: int,
    fused: bool,
    tmp_path: Path,
) -> None:
    step = EmulatedStep(heads, page_tokens, [(n, 1) for n in contexts], seed=target)
    kernel = decode_pages(
        tmp_path,
        HEAD_DIM=step.head_dim, GROUP=step.group, PAGE=page_tokens, HALF=half, FUSED=int(fused),
        OVERLAP=int(fused), STAGES=3,
    )  # fmt: skip
    norm = step.halves(step.num_heads + step.num_kv_heads, step.head_dim, scale=0.2, center=1)
    angle = step.random.random((max(contexts), half)) * 6
    cos, sin = to_halves(np.cos(angle)), to_halves(np.sin(angle))
    expected_pages, queries = step.pages.copy(), step.heads()[:, : step.num_heads]
    if fused:
        spoil_new_tokens(step)
        queries = put_new_tokens(step, norm, cos, sin, expected_pages)
    expected = step.attended(queries, expected_pages)
    made = decode_items(step.contexts, step.page_starts, target, DECODE_BLOCK)
    items = np.concatenate([made.items, np.full((UNUSED, 8), 7, np.int32)])
    slots = len(items) * step.num_heads
    sums, stats = nowhere(slots, step.head_dim), nowhere(slots, 2)
    counters = np.zeros(len(contexts) * step.num_kv_heads, np.int32)
    out = np.full((step.num_tokens, step.num_heads * step.head_dim), NOT_A_NUMBER, np.uint16)
    count = np.array([len(made.items)], np.int32)
    page_values = step.pages[0].size
    layer_at = step.pages.ctypes.data + LAYER * page_values // LAYERS * 2
    for seed in range(2):
        out[:] = NOT_A_NUMBER
        kernel.run(
            at(step.qkv), at(norm), at(cos), at(sin), ctypes.byref(step.page_map(16)),
            ctypes.c_void_p(layer_at), at(items), at(count), at(step.table), at(sums), at(stats),
            at(counters), at(out), step.width, ctypes.c_longlong(page_values), step.num_kv_heads,
            LAYER, ctypes.c_float(step.scale), ctypes.c_float(EPS), len(items), seed,
        )  # fmt: skip
        assert distance(to_floats(out), expected) < TOLERANCE
        assert not counters.any()
    found = to_floats(step.pages)
    wanted = to_floats(expected_pages)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_allclose(np.nan_to_num(found), np.nan_to_num(wanted), rtol=0.02, atol=0.02)


@pytest.mark.parametrize(
    ("heads", "page_tokens", "rows", "target"),
    [
        ((4, 1, 128), 16, ((5, 5), (130, 37), (16, 16)), 1),
        ((5, 1, 128), 16, ((530, 9), (300, 3)), 6),
        ((2, 2, 64), 32, ((300, 150),), 2),
    ],
    ids=["resumed", "split", "one head a tile"],
)
def test_attend_tiles_wgmma(
    heads: tuple[int, int, int],
    page_tokens: int,
    rows: tuple[tuple[int, int], ...],
    target: int,
    tmp_path: Path,
) -> None:
    step = EmulatedStep(heads, page_tokens, rows, seed=target)
    kernel = prefill_wgmma(
        tmp_path, HEAD_DIM=step.head_dim, GROUP=step.group, PAGE=page_tokens
    )  # fmt: skip
    expected = step.attended(step.heads()[:, : step.num_heads], step.pages)
    tile = prefill_tile(step.group)
    limits = PrefillLimits(tile=tile, block=PREFILL_BLOCK, target=target)
    items = prefill_items(step.row_starts, step.contexts, step.page_starts, limits)
    slots = max_split_parts(limits) * step.num_kv_heads
    sums = nowhere(slots * PREFILL_ROWS, step.head_dim)
    stats = nowhere(slots * PREFILL_ROWS, 2)
    joined, state = np.zeros(slots, np.int32), np.zeros(2, np.int32)
    out = np.full((step.num_tokens, step.num_heads * step.head_dim), NOT_A_NUMBER, np.uint16)
    count = np.array([len(items)], np.int32)
    for seed in range(2):
        out[:] = NOT_A_NUMBER
        kernel.run(
            ctypes.byref(step.query_map(tile)), ctypes.byref(step.page_map(page_tokens)),
            at(items), at(count), at(step.table), at(sums), at(stats), at(joined), at(state),
            at(out), step.num_kv_heads, LAYER, ctypes.c_float(step.scale), 3, seed,
        )  # fmt: skip
        assert distance(to_floats(out), expected) < TOLERANCE
        assert not joined.any() and not state.any()


def spoil_new_tokens(step: EmulatedStep) -> None:
    """Places that the step has yet to write are not numbers."""
    for row, (context, _) in enumerate(step.rows):
        page, inside = step.table_of(row)[-1], (context - 1) % step.page_tokens
        step.pages[page, LAYER, :, inside] = NOT_A_NUMBER


def put_new_tokens(
    step: EmulatedStep,
    norm: NDArray[np.uint16],
    cos: NDArray[np.uint16],
    sin: NDArray[np.uint16],
    pages: NDArray[np.uint16],
) -> FloatArray:
    """Norm and RoPE of queries and keys, and the KV write; returns the queries."""
    heads = step.heads()
    turned = heads[:, : step.num_heads + step.num_kv_heads]
    root = np.sqrt((turned**2).mean(axis=-1, keepdims=True) + EPS)
    turned = rounded(rounded(turned / root) * to_floats(norm))
    half = cos.shape[1]
    cosine, sine = (to_floats(table[step.contexts - 1])[:, None] for table in (cos, sin))
    low, high = turned[..., :half].copy(), turned[..., half : 2 * half].copy()
    turned[..., :half] = low * cosine - high * sine
    turned[..., half : 2 * half] = high * cosine + low * sine
    turned = rounded(turned)
    for row, (context, _) in enumerate(step.rows):
        page, inside = step.table_of(row)[-1], (context - 1) % step.page_tokens
        pages[page, LAYER, 0, inside] = to_halves(turned[row, step.num_heads :])
        pages[page, LAYER, 1, inside] = to_halves(heads[row, step.num_heads + step.num_kv_heads :])
    return turned[:, : step.num_heads]


def rounded(values: FloatArray) -> FloatArray:
    return to_floats(to_halves(values))


def nowhere(*shape: int) -> FloatArray:
    return np.full(shape, np.nan, np.float32)


def at(values: NDArray[np.generic]) -> ctypes.c_void_p:
    return ctypes.c_void_p(values.ctypes.data)


def distance(found: FloatArray, expected: FloatArray) -> float:
    """Norm of the difference over the norm of the reference; not a number stays one."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
