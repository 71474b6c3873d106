"""The primitive ops against float64 maths, on odd shapes, in both types."""

import numpy as np
import pytest
from numpy.typing import NDArray

from pegainfer_core.backend import AttentionShape, DType, NumpyBackend, StepMetadata, Tensor
from pegainfer_core.backend.numpy.kernels import round_bfloat16
from pegainfer_core.weights import RopeConfig
from tests.backend import naive

BACKEND = NumpyBackend()
#: Largest error of one rounding, relative to the result.
TOLERANCE = {DType.FLOAT32: 2e-6, DType.BFLOAT16: 2.0**-8}


def random(shape: tuple[int, ...], dtype: DType, seed: int = 0, scale: float = 1.0) -> Tensor:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * scale
    if dtype is DType.BFLOAT16:
        values = naive.bfloat16(values)
    return BACKEND.adopt(np.ascontiguousarray(values, np.float32), dtype)


def array(tensor: Tensor) -> NDArray[np.float32]:
    return BACKEND.to_host(tensor, tensor.shape[0])


def is_bfloat16(values: NDArray[np.float32]) -> bool:
    return not (values.view(np.uint32) & 0xFFFF).any()


def check(
    actual: NDArray[np.float32], expected: NDArray[np.floating], dtype: DType, roundings: int = 1
) -> None:
    tolerance = TOLERANCE[dtype] * roundings
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * 0.1)
    if dtype is DType.BFLOAT16:
        assert is_bfloat16(np.ascontiguousarray(actual))


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16])
@pytest.mark.parametrize(("count", "width"), [(1, 1), (1, 37), (3, 64), (5, 129)])
@pytest.mark.parametrize("eps", [1e-6, 0.3])
def test_rms_norm(count: int, width: int, dtype: DType, eps: float) -> None:
    x, weight = random((7, width), dtype), random((width,), dtype, seed=1)
    out = BACKEND.empty((7, width), dtype)
    array(out)[...] = 9.0
    BACKEND.ops.rms_norm(count, x, weight, eps, out)
    expected = naive.rms_norm(array(x)[:count], array(weight), eps)
    check(array(out)[:count], expected, dtype, roundings=2)
    assert (array(out)[count:] == 9.0).all(), "rows beyond the step were touched"


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16])
@pytest.mark.parametrize(("count", "inner", "width"), [(1, 17, 5), (2, 64, 33), (6, 40, 1)])
def test_linear(count: int, inner: int, width: int, dtype: DType) -> None:
    x, weight = random((8, inner), dtype), random((width, inner), dtype, seed=1)
    out = BACKEND.empty((8, width), dtype)
    array(out)[...] = 9.0
    BACKEND.ops.linear(count, x, weight, out)
    expected = array(x)[:count].astype(np.float64) @ array(weight).T
    check(array(out)[:count], expected, dtype, roundings=4)
    assert (array(out)[count:] == 9.0).all()


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16])
def test_silu_mul_far_out_too(dtype: DType) -> None:
    gate = np.array([-1e30, -200, -20, -1, 0, 1, 20, 200, 1e30], np.float32)
    up = np.linspace(-2, 3, gate.size).astype(np.float32)
    both = np.stack([np.concatenate([gate, up]), np.concatenate([gate[::-1], up])])
    rounded = both if dtype is DType.FLOAT32 else naive.bfloat16(both)
    gate_up = BACKEND.adopt(np.ascontiguousarray(rounded, np.float32), dtype)
    out = BACKEND.empty((2, gate.size), dtype)
    BACKEND.ops.silu_mul(2, gate_up, out)
    gates, ups = np.split(array(gate_up), 2, axis=1)
    check(array(out), naive.silu(gates) * ups, dtype, roundings=2)


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16])
def test_add(dtype: DType) -> None:
    x, out = random((4, 33), dtype), random((4, 33), dtype, seed=1)
    before = array(out).copy()
    BACKEND.ops.add(3, x, out)
    check(array(out)[:3], array(x)[:3].astype(np.float64) + before[:3], dtype)
    assert (array(out)[3] == before[3]).all()


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16])
def test_head_norm_touches_its_heads_only(dtype: DType) -> None:
    x, weight = random((3, 5 * 8), dtype), random((3, 8), dtype, seed=1)
    before = array(x).copy()
    BACKEND.ops.head_norm(2, x, weight, 1e-6)
    expected = naive.rms_norm(before[:2].reshape(2, 5, 8)[:, :3], array(weight), 1e-6)
    check(array(x)[:2].reshape(2, 5, 8)[:, :3].copy(), expected, dtype, roundings=2)
    kept = np.ones_like(before, bool)
    kept[:2, :24] = False
    assert (array(x)[kept] == before[kept]).all()


def one_row(start: int, count: int, context: int = 40_000) -> StepMetadata:
    metadata = StepMetadata(max_tokens=8, max_rows=2, max_pages=context // 16, page_tokens=16)
    pages = list(range(1, (start + count) // 16 + 2))
    metadata.add_row([3] * count, start, pages, samples=True)
    metadata.finish(0)
    return metadata


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16])
@pytest.mark.parametrize("start", [0, 1, 255, 4097, 20_001])
def test_rope_turns_by_each_tokens_own_position(start: int, dtype: DType) -> None:
    config = RopeConfig(rope_type="default", theta=1e4, rotary_dim=16)
    table = BACKEND.rope_table(config, start + 3, dtype)
    x = random((3, 4 * 16), dtype)
    before = array(x).copy()
    BACKEND.ops.rope(BACKEND.upload(one_row(start, 3)), x, 3, 16, table)
    inverse = np.array(config.inverse_frequencies(), np.float32).astype(np.float64)
    angles = (np.arange(start, start + 3)[:, None] * inverse).astype(np.float64)
    expected = naive.rope(before.reshape(3, 4, 16)[:, :3], angles)
    # The float32 product of position and frequency is off by up to half a unit in its last place.
    angle_error = start * 2.0**-23
    actual = array(x).reshape(3, 4, 16)
    step = 2.0**-7 if dtype is DType.BFLOAT16 else 1e-6
    np.testing.assert_allclose(actual[:, :3], expected, atol=4 * (step + angle_error))
    assert (actual[:, 3] == before.reshape(3, 4, 16)[:, 3]).all(), "a value head was turned"


def test_rope_leaves_channels_beyond_the_rotary_width() -> None:
    config = RopeConfig(rope_type="default", theta=1e4, rotary_dim=8)
    x = random((2, 16), DType.FLOAT32)
    before = array(x).copy()
    table = BACKEND.rope_table(config, 9, DType.FLOAT32)
    BACKEND.ops.rope(BACKEND.upload(one_row(5, 2)), x, 1, 16, table)
    assert (array(x)[:, 8:] == before[:, 8:]).all()
    assert not np.allclose(array(x)[:, :8], before[:, :8])


def test_rounding_to_bfloat16_is_to_nearest_even() -> None:
    """Every significand, at the smallest, a middle (negative) and the largest exponent."""
    significands = np.arange(1 << 23, dtype=np.uint32)
    for sign_and_exponent in (0x001, 0x17F, 0x0ED):
        bits = np.uint32(sign_and_exponent << 23) | significands
        rounded = bits.view(np.float32).copy()
        round_bfloat16(rounded, np.empty_like(rounded))
        even = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
        assert np.array_equal(rounded.view(np.uint32), even & np.uint32(0xFFFF0000))


def test_rounding_agrees_with_the_neighbours_distance() -> None:
    x = np.random.default_rng(1).standard_normal(1000).astype(np.float32)
    ties = np.float32(1) + np.arange(64, dtype=np.float32) * np.float32(2.0**-8)
    for values in (x, ties, -ties, np.zeros(3, np.float32)):
        rounded = values.copy()
        round_bfloat16(rounded, np.empty_like(rounded))
        np.testing.assert_array_equal(rounded, naive.bfloat16(values))


def test_rounding_of_views_and_of_large_arrays() -> None:
    x = np.random.default_rng(1).standard_normal((700, 300)).astype(np.float32)
    rounded = x.copy()
    round_bfloat16(rounded[:, ::2], np.empty((700, 150), np.float32))
    np.testing.assert_array_equal(rounded[:, ::2], naive.bfloat16(x[:, ::2].copy()))
    np.testing.assert_array_equal(rounded[:, 1::2], x[:, 1::2])


def test_embed_and_logit_tokens_pick_rows() -> None:
    table = random((50, 6), DType.FLOAT32)
    metadata = StepMetadata(max_tokens=16, max_rows=3, max_pages=9, page_tokens=16)
    metadata.add_row([49], 3, [1], samples=True)
    metadata.add_row([7, 0, 8], 0, [2], samples=False, num_prompt_logits=2)
    metadata.add_row([1, 2], 0, [3], samples=True, num_prompt_logits=1)
    metadata.finish(1)
    batch = BACKEND.upload(metadata)
    hidden = BACKEND.empty((16, 6), DType.FLOAT32)
    BACKEND.ops.embed(batch, table, hidden)
    np.testing.assert_array_equal(array(hidden)[:6], array(table)[[49, 7, 0, 8, 1, 2]])
    out = BACKEND.empty((16, 6), DType.FLOAT32)
    BACKEND.ops.take_logit_tokens(batch, 0, 5, hidden, out)
    np.testing.assert_array_equal(array(out)[:5], array(table)[[49, 2, 7, 0, 1]])
    BACKEND.ops.take_logit_tokens(batch, 3, 2, hidden, out)
    np.testing.assert_array_equal(array(out)[:2], array(table)[[0, 1]])


def test_an_id_outside_the_table_is_an_error() -> None:
    batch = BACKEND.upload(one_row(0, 1))
    with pytest.raises(IndexError):
        BACKEND.ops.embed(
            batch, random((3, 2), DType.FLOAT32), BACKEND.empty((1, 2), DType.FLOAT32)
        )


def test_shape_widths() -> None:
    shape = AttentionShape(num_heads=6, num_kv_heads=2, head_dim=8, scale=1.0, norm_eps=0.0)
    assert (shape.query_width, shape.kv_width, shape.qkv_width) == (48, 16, 80)
