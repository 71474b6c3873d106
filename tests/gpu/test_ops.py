"""Every op on CUDA against NumPy: fresh random inputs, odd shapes, poisoned outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from pegainfer_core.backend import (
    AttentionShape,
    AttentionWeights,
    DType,
    MlpWeights,
    RopeTable,
    rope_tables,
)
from pegainfer_core.weights import RopeConfig
from tests.gpu.pair import Pair, Split, Step, attention_shape, kv_layout

if TYPE_CHECKING:
    from pegainfer_core.backend.cuda import CudaBackend

pytestmark = pytest.mark.gpu

DTYPES = (DType.FLOAT32, DType.BFLOAT16)

#: (context, query tokens): decoding rows first. Single tokens, page borders, long contexts, prompts
#: from the start, prompts that continue, and one token of a prompt behind others.
MIXED = ((1, 1), (16, 1), (17, 1), (700, 1), (5, 5), (130, 37), (16, 16), (300, 300), (129, 128))
DECODING = ((1, 1), (33, 1), (2048, 1), (64, 1), (640, 1))
MANY = tuple((1 + 37 * i, 1) for i in range(40))
MOST = (*((1 + 3 * i, 1) for i in range(64)), (9, 1))
ROOM = 640
SHAPES = {
    "group 1": (3, 3, 16, 16),
    "group 4, wide": (32, 8, 128, 16),
    "group 5": (5, 1, 64, 32),
    "group 8, long pages": (16, 2, 32, 64),
}


@pytest.fixture(params=DTYPES, ids=lambda dtype: dtype.value)
def pair(request: pytest.FixtureRequest, cuda: CudaBackend) -> Pair:
    seed = int(np.random.default_rng().integers(1 << 31))
    print("seed", seed)
    return Pair(cuda, request.param, seed)


def plain_step(pair: Pair, rows: tuple[tuple[int, int], ...] = MIXED) -> Step:
    return Step(pair, kv_layout(attention_shape(2, 1, 16), 16, pair.dtype), rows)


@pytest.mark.parametrize("width", [7, 128, 1000, 2560])
def test_embed(pair: Pair, width: int) -> None:
    step = plain_step(pair)
    hidden = pair.poison(step.num_tokens, width)
    pair.both("embed", step.batch(), pair.random_tensor(97, width), hidden)
    expected, found = pair.host(hidden, step.num_tokens)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("width", [7, 128, 1000, 2560, 5120])
def test_rms_norm(pair: Pair, width: int) -> None:
    x, weight = pair.random_tensor(33, width), pair.random_tensor(width, scale=0.2, center=1)
    out = pair.poison(33, width)
    pair.both("rms_norm", 33, x, weight, 1e-6, out)
    pair.check(out, 33)


@pytest.mark.parametrize("count", [1, 2, 7, 17, 129])
@pytest.mark.parametrize("sizes", [(96, 64), (1000, 128), (4096, 2560)])
def test_linear(pair: Pair, count: int, sizes: tuple[int, int]) -> None:
    n, k = sizes
    x, weight = pair.random_tensor(160, k), pair.random_tensor(n, k, scale=k**-0.5)
    for dtype in {DType.FLOAT32, pair.dtype}:
        out = pair.poison(160, n, dtype=dtype)
        pair.both("linear", count, x, weight, out)
        pair.check(out, count)


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 16, 27, 40])
@pytest.mark.parametrize("inner", [96, 512, 9728])
def test_projections_that_add(pair: Pair, count: int, inner: int) -> None:
    step = plain_step(pair, ((300, count),))
    hidden, x = pair.random_tensor(64, 128), pair.random_tensor(64, inner)
    weight = pair.random_tensor(128, inner, scale=inner**-0.5)
    for op in ("out_proj_add", "down_add"):
        pair.both(op, step.batch(), x, weight, hidden, pair.workspace())
        pair.check(hidden, step.num_tokens)


@pytest.mark.parametrize("count", [17, 32, 33, 48, 64])
@pytest.mark.parametrize("sizes", [(384, 384), (4096, 2560), (9216, 2560), (9728, 2560)])
def test_wide_projections_that_add(pair: Pair, count: int, sizes: tuple[int, int]) -> None:
    """Of dozens of rows: blocks that share a width, several tiles of outputs."""
    inner, width = sizes
    step = plain_step(pair, ((300, count),))
    hidden, x = pair.random_tensor(72, width), pair.random_tensor(72, inner)
    weight = pair.random_tensor(width, inner, scale=inner**-0.5)
    # Twice: the second time its blocks overlap the first's.
    for _ in range(2):
        pair.both("down_add", step.batch(), x, weight, hidden, pair.workspace())
    pair.check(hidden, step.num_tokens)


@pytest.mark.parametrize("sizes", [(64, 80), (2560, 9728)])
@pytest.mark.parametrize("count", [1, 3, 5, 13, 16, 31, 40, 64])
def test_first_half_of_the_mlp(pair: Pair, sizes: tuple[int, int], count: int) -> None:
    hidden_size, inner = sizes
    step = plain_step(pair, ((300, count),))
    hidden = pair.random_tensor(64, hidden_size)
    norm = pair.random_tensor(hidden_size, scale=0.2, center=1)
    gate_up = pair.random_tensor(2 * inner, hidden_size, scale=hidden_size**-0.5)
    down = pair.random_tensor(1, 1)
    weights = Split(
        MlpWeights(norm.numpy, gate_up.numpy, down.numpy, 1e-6),
        MlpWeights(norm.cuda, gate_up.cuda, down.cuda, 1e-6),
    )
    activated = pair.poison(64, inner)
    pair.both("norm_gate_up_act", step.batch(), hidden, weights, activated, pair.workspace())
    pair.check(activated, step.num_tokens)


@pytest.mark.parametrize("name", SHAPES)
def test_everything_before_the_attention(pair: Pair, name: str) -> None:
    *sizes, page_tokens = SHAPES[name]
    shape = attention_shape(*sizes)
    step = Step(pair, kv_layout(shape, page_tokens, pair.dtype), MIXED)
    hidden = pair.random_tensor(step.num_tokens, 96)
    weights = attention_weights(pair, shape, 96)
    rope = rope_pair(pair, shape.head_dim)
    qkv = pair.poison(step.num_tokens, shape.qkv_width)
    pair.both(
        "norm_qkv_rope_write", step.batch(), hidden, weights, shape, rope, step.kv(), 1, qkv,
        pair.workspace(),
    )  # fmt: skip
    pair.check(qkv, step.num_tokens, slice(0, shape.query_width))
    step.check_pages()


@pytest.mark.parametrize("rows", [MIXED, DECODING, DECODING[:1], MANY, MOST], ids=len)
@pytest.mark.parametrize("name", SHAPES)
def test_the_whole_attention(pair: Pair, name: str, rows: tuple[tuple[int, int], ...]) -> None:
    """Decoding rows go another way: what is before the attention is done inside it."""
    *sizes, page_tokens = SHAPES[name]
    shape = attention_shape(*sizes)
    step = Step(pair, kv_layout(shape, page_tokens, pair.dtype), rows)
    hidden = pair.random_tensor(ROOM, 96)
    weights, rope = attention_weights(pair, shape, 96), rope_pair(pair, shape.head_dim)
    qkv, attended = pair.poison(ROOM, shape.qkv_width), pair.poison(ROOM, shape.query_width)
    batch, kv = step.batch(), step.kv()
    # Twice: what counts the parts of a row must be as new after the first time.
    for _ in range(2):
        pair.both(
            "norm_qkv_rope_write", batch, hidden, weights, shape, rope, kv, 1, qkv,
            pair.workspace(),
        )  # fmt: skip
        pair.both("attend", batch, qkv, shape, kv, 1, attended, pair.workspace())
        pair.check(attended, step.num_tokens)
        step.check_pages()


@pytest.mark.parametrize("name", SHAPES)
def test_primitive_ops_on_heads(pair: Pair, name: str) -> None:
    *sizes, page_tokens = SHAPES[name]
    shape = attention_shape(*sizes)
    step = Step(pair, kv_layout(shape, page_tokens, pair.dtype), MIXED)
    qkv = pair.random_tensor(step.num_tokens, shape.qkv_width)
    num_heads = shape.num_heads + shape.num_kv_heads
    weight = pair.random_tensor(num_heads, shape.head_dim, scale=0.2, center=1)
    pair.both("head_norm", step.num_tokens, qkv, weight, 1e-6)
    pair.check(qkv, step.num_tokens)
    rope = rope_pair(pair, shape.head_dim)
    pair.both("rope", step.batch(), qkv, num_heads, shape.head_dim, rope)
    pair.check(qkv, step.num_tokens)
    pair.both("kv_write", step.batch(), qkv, shape, step.kv(), 2)
    step.check_pages()


@pytest.mark.parametrize("rows", [MIXED, DECODING], ids=["mixed", "decoding"])
@pytest.mark.parametrize("name", SHAPES)
def test_attention(pair: Pair, name: str, rows: tuple[tuple[int, int], ...]) -> None:
    *sizes, page_tokens = SHAPES[name]
    shape = attention_shape(*sizes)
    step = Step(pair, kv_layout(shape, page_tokens, pair.dtype), rows)
    qkv = pair.random_tensor(ROOM, shape.qkv_width)
    attended = pair.poison(ROOM, shape.query_width)
    pair.both("attend", step.batch(), qkv, shape, step.kv(), 1, attended, pair.workspace())
    pair.check(attended, step.num_tokens)


@pytest.mark.parametrize("vocab", [97, 1000, 151_936])
def test_head_and_argmax(pair: Pair, vocab: int) -> None:
    step = plain_step(pair)
    count = step.metadata.num_samples
    hidden = pair.random_tensor(step.num_tokens, 64)
    norm = pair.random_tensor(64, scale=0.2, center=1)
    head = pair.random_tensor(vocab, 64, scale=0.3)
    logits = pair.poison(32, vocab, dtype=DType.FLOAT32)
    pair.both(
        "lm_head", step.batch(), hidden, norm, 1e-6, head, 2, count - 2, logits, pair.workspace()
    )
    pair.check(logits, count - 2)
    best = pair.poison(32, 2, dtype=DType.FLOAT32)
    same = pair.tensor(pair.host(logits, count - 2)[0].copy(), DType.FLOAT32)
    pair.both("argmax", count - 2, same, best, pair.workspace())
    expected, found = pair.host(best, count - 2)
    np.testing.assert_array_equal(found, expected)


def test_argmax_takes_the_first_of_equals_and_shows_bad_values(pair: Pair) -> None:
    values = np.zeros((4, 5000), np.float32)
    values[1, [4999, 1200, 1201]] = 3
    values[2, 700] = np.nan
    values[3, :] = -np.inf
    best = pair.poison(4, 2, dtype=DType.FLOAT32)
    pair.both("argmax", 4, pair.tensor(values, DType.FLOAT32), best, pair.workspace())
    found = pair.cuda.to_host(best.cuda, 4)
    assert found[:2].tolist() == [[0, 0], [3, 1200]]
    assert not np.isfinite(found[2:, 0]).any()


@pytest.mark.parametrize("count", [1, 3000])
def test_elementwise(pair: Pair, count: int) -> None:
    gate_up, out = pair.random_tensor(count, 2 * 72, scale=3), pair.poison(count, 72)
    pair.both("silu_mul", count, gate_up, out)
    pair.check(out, count)
    pair.both("add", count, pair.random_tensor(count, 72), out)
    pair.check(out, count)


def attention_weights(pair: Pair, shape: AttentionShape, hidden: int) -> Split:
    num_heads = shape.num_heads + shape.num_kv_heads
    parts = {
        "input_norm": pair.random_tensor(hidden, scale=0.2, center=1),
        "qkv": pair.random_tensor(shape.qkv_width, hidden, scale=0.1),
        "head_norm": pair.random_tensor(num_heads, shape.head_dim, scale=0.2, center=1),
        "out": pair.random_tensor(1, 1),
    }
    return Split(
        AttentionWeights(**{key: both.numpy for key, both in parts.items()}),
        AttentionWeights(**{key: both.cuda for key, both in parts.items()}),
    )


def rope_pair(pair: Pair, head_dim: int) -> Split:
    rope = RopeConfig(rope_type="default", theta=1e4, rotary_dim=head_dim)
    tables = []
    for backend in (pair.numpy, pair.cuda):
        tables.append(backend.rope_table(rope, 2100, pair.dtype))
    assert isinstance(tables[1], RopeTable)
    assert rope_tables(rope, 1)[0].shape[1] == head_dim // 2
    return Split(*tables)
