"""Attention on CUDA against NumPy: split contexts, packed heads, resumed and mixed rows."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pegainfer_core.backend import DType
from pegainfer_core.backend.cuda.arrays import address
from pegainfer_core.backend.numpy.arrays import stored_pages
from tests.gpu.pair import Pair, Step, attention_shape, kv_layout

if TYPE_CHECKING:
    from pegainfer_core.backend.cuda import CudaBackend

    Rows = tuple[tuple[int, int], ...]

pytestmark = pytest.mark.gpu

#: (context, query tokens) of rows, decoding ones first.
STEPS: dict[str, Rows] = {
    "a prompt": ((777, 777),),
    "page and tile borders": ((16, 16), (17, 17), (32, 32), (33, 33), (128, 128), (129, 129)),
    "short behind long": ((4096, 16),),
    "few tokens behind contexts": ((3001, 64), (1000, 3), (2500, 2), (640, 31)),
    "resumed": ((900, 256), (1300, 300), (257, 129)),
    "mixed": ((1, 1), (17, 1), (700, 1), (2048, 1), (5, 5), (1030, 37), (300, 300), (2600, 2)),
    "many rows": tuple((2 + 31 * i, 2 + i % 13) for i in range(70)),
    "decoding, ragged": tuple((1 + 97 * i, 1) for i in range(64)),
    "decoding, more rows": tuple((1 + 29 * i, 1) for i in range(80)),
    "decoding, one long": ((12_345, 1),),
    "decoding, borders": tuple((n, 1) for n in (15, 16, 17, 63, 64, 65, 127, 128, 129, 1024, 1025)),
}
#: Query heads, key heads, channels, tokens a page.
SHAPES = {
    "group_1": (2, 2, 128, 16),
    "group_2": (4, 2, 128, 16),
    "group_3": (6, 2, 64, 16),
    "group_4": (32, 8, 128, 16),
    "group_5": (10, 2, 128, 16),
    "group_6": (6, 1, 128, 32),
    "group_7": (7, 1, 128, 64),
    "group_8": (16, 2, 128, 16),
    "wide_heads": (8, 2, 256, 16),
    "few_channels": (4, 2, 16, 16),
}
MOST_TOKENS = 1024


@cache
def backend(num_kv_heads: int, group: int) -> CudaBackend:
    """One that was told of a model's heads."""
    from pegainfer_core.backend.cuda import CudaBackend

    return CudaBackend(num_kv_heads=num_kv_heads, group=group)


def spoil_unwritten(step: Step) -> None:
    """What lies in a row's last page behind its context is not a number."""
    from pegainfer_core.backend.cuda.device import host_address  # needs CuPy

    stored, meta = stored_pages(step.pools[0]), step.metadata
    bad = 0x7FC0 if stored.dtype == np.uint16 else np.nan
    for row in range(meta.num_rows):
        inside = int(meta.context_lens[row]) % step.layout.page_tokens
        if inside:
            page = int(meta.pages[meta.page_starts[row + 1] - 1])
            stored[page, :, :, inside:] = bad
    device = step.pair.cuda.device
    device.upload(address(step.pools[1].pages), host_address(stored), stored.nbytes)
    device.synchronize()


@pytest.mark.parametrize("rows", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("name", SHAPES)
def test_attention_in_bfloat16(name: str, rows: Rows) -> None:
    check_attention(name, rows, DType.BFLOAT16)


@pytest.mark.parametrize("step", ["few tokens behind contexts", "mixed", "decoding, one long"])
@pytest.mark.parametrize("name", ["group_1", "group_5", "few_channels"])
def test_attention_in_float32(name: str, step: str) -> None:
    check_attention(name, STEPS[step], DType.FLOAT32)


def check_attention(name: str, rows: Rows, dtype: DType) -> None:
    """Twice: what counts the parts of a tile must be as new after the first time."""
    *sizes, page_tokens = SHAPES[name]
    shape = attention_shape(*sizes)
    seed = int(np.random.default_rng().integers(1 << 31))
    print("seed", seed)
    cuda = backend(shape.num_kv_heads, shape.num_heads // shape.num_kv_heads)
    pair = Pair(cuda, dtype, seed)
    step = Step(pair, kv_layout(shape, page_tokens, dtype), rows)
    spoil_unwritten(step)
    qkv = pair.random_tensor(MOST_TOKENS, shape.qkv_width)
    for _ in range(2):
        attended = pair.poison(MOST_TOKENS, shape.query_width)
        pair.both("attend", step.batch(), qkv, shape, step.kv(), 1, attended, pair.workspace())
        pair.check(attended, step.num_tokens)
