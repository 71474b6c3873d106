"""Ops of hybrid models on NumPy against float64 maths, row by row and across steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pegainfer_core.backend import (
    DeltaShape,
    DeltaWeights,
    DType,
    NumpyBackend,
    StateLayout,
    StatePool,
    StepMetadata,
    Tensor,
)
from pegainfer_core.backend.numpy.delta_rule import DeltaInputs, run_delta_rule, softplus
from pegainfer_core.weights import ConfigError
from tests.backend import naive
from tests.backend.test_numpy_ops import BACKEND, array, check, random

OPS = BACKEND.recurrent_ops()
LAYERS, LAYER = 2, 1
SHAPES = [
    DeltaShape(
        num_key_heads=k, num_value_heads=v, key_dim=d, value_dim=e, conv_taps=t, norm_eps=eps
    )
    for k, v, d, e, t, eps in [(1, 1, 8, 8, 4, 1e-6), (2, 6, 5, 7, 2, 0.1), (2, 4, 16, 8, 3, 1e-3)]
]


class Rows:
    """A delta-rule layer, its states, and sequences that are computed piece by piece."""

    def __init__(self, shape: DeltaShape, dtype: DType, num_slots: int = 6) -> None:
        self.shape = shape
        self.dtype = dtype
        layout = StateLayout(
            num_layers=LAYERS,
            num_heads=shape.num_value_heads,
            key_dim=shape.key_dim,
            value_dim=shape.value_dim,
            conv_width=shape.conv_width,
            conv_history=shape.conv_taps - 1,
            dtype=dtype,
        )
        self.states = BACKEND.state_pool(layout, num_slots)
        for part in (self.states.memory, self.states.conv):
            array(part).fill(np.nan)
        heads = (shape.num_value_heads,)
        self.weights = DeltaWeights(
            input_norm=random((1,), dtype),
            projection=random((1, 1), dtype),
            conv=random((shape.conv_taps, shape.conv_width), dtype, seed=1),
            decay_rate=BACKEND.adopt(-np.exp(array(random(heads, DType.FLOAT32))), DType.FLOAT32),
            decay_bias=random(heads, DType.FLOAT32, seed=2),
            norm=random((shape.value_dim,), dtype, seed=3),
            out=random((1, 1), dtype),
        )

    def step(
        self,
        inputs: list[NDArray[np.float32]],
        starts: list[int],
        slots: list[int],
        saves: list[tuple[int, int, int]] = [],  # noqa: B006
    ) -> list[NDArray[np.float32]]:
        """One step over rows of projections; saves are (row, tokens, slot)."""
        count = sum(map(len, inputs))
        metadata = StepMetadata(count, len(inputs), 1000, 16, max_saves=len(saves))
        for values, start, slot in zip(inputs, starts, slots, strict=True):
            pages = [1] * -(-(start + len(values)) // 16)
            metadata.add_row([0] * len(values), start, pages, samples=False, slot=slot)
        for save in saves:
            metadata.add_save(*save)
        metadata.finish(0)
        projected = BACKEND.adopt(np.concatenate(inputs), self.dtype)
        gated = BACKEND.empty((count, self.shape.value_width), self.dtype)
        OPS.gated_delta(
            BACKEND.upload(metadata),
            projected,
            self.weights,
            self.shape,
            self.states,
            LAYER,
            gated,
            BACKEND.workspace(count, 64),
        )
        ends = np.cumsum([len(values) for values in inputs])[:-1]
        return np.split(array(gated).copy(), ends)

    def inputs(self, count: int, seed: int = 0) -> NDArray[np.float32]:
        return array(random((count, self.shape.projected_width), self.dtype, seed=seed + 10))

    def expected(self, projected: NDArray[np.float32]) -> NDArray[np.float64]:
        """Float64, token by token, rounding nothing."""
        shape, weights = self.shape, self.weights
        x = projected.astype(np.float64)
        width, taps = shape.conv_width, array(weights.conv)
        padded = np.concatenate([np.zeros((shape.conv_taps - 1, width)), x[:, :width]])
        convolved = sum(padded[j : j + len(x)] * taps[j] for j in range(shape.conv_taps))
        mixed = naive.silu(np.asarray(convolved))
        z, b, a = np.split(
            x[:, width:],
            [shape.value_width, shape.value_width + shape.num_value_heads],
            axis=1,
        )
        memory = np.zeros((shape.num_value_heads, shape.key_dim, shape.value_dim))
        out = np.zeros((len(x), shape.num_value_heads, shape.value_dim))
        rate, bias = array(weights.decay_rate), array(weights.decay_bias)
        group = shape.num_value_heads // shape.num_key_heads
        for t, values in enumerate(mixed):
            query, key = values[: 2 * shape.key_width].reshape(2, shape.num_key_heads, -1)
            value = values[2 * shape.key_width :].reshape(shape.num_value_heads, -1)
            for head in range(shape.num_value_heads):
                k, q = key[head // group], query[head // group]
                k = k / np.sqrt((k * k).sum() + 1e-6)
                q = q / np.sqrt((q * q).sum() + 1e-6) / np.sqrt(shape.key_dim)
                memory[head] *= np.exp(rate[head] * np.logaddexp(0, a[t, head] + bias[head]))
                beta = 1 / (1 + np.exp(-b[t, head]))
                memory[head] += np.outer(k, beta * (value[head] - k @ memory[head]))
                out[t, head] = q @ memory[head]
        normed = naive.rms_norm(out, array(weights.norm), shape.norm_eps)
        return normed.reshape(len(x), -1) * naive.silu(z)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 200])
def test_gated_delta_is_the_recurrence(shape: DeltaShape, count: int) -> None:
    rows = Rows(shape, DType.FLOAT32)
    inputs = rows.inputs(count)
    (out,) = rows.step([inputs], [0], [2])
    np.testing.assert_allclose(out, rows.expected(inputs), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_bfloat16_is_close_and_representable(shape: DeltaShape) -> None:
    rows = Rows(shape, DType.BFLOAT16)
    inputs = rows.inputs(70)
    (out,) = rows.step([inputs], [0], [2])
    assert not (out.view(np.uint32) & 0xFFFF).any()
    assert np.median(np.abs(out - rows.expected(inputs))) < 0.01
    kept = array(rows.states.conv)[2, LAYER]
    np.testing.assert_array_equal(kept, inputs[1 - shape.conv_taps :, : shape.conv_width])


@settings(max_examples=30, deadline=None)
@given(
    cuts=st.lists(st.integers(1, 70), min_size=1, max_size=5),
    shape=st.sampled_from(SHAPES),
    mates=st.integers(0, 2),
)
def test_pieces_are_the_whole(cuts: list[int], shape: DeltaShape, mates: int) -> None:
    """Whatever the pieces, and whatever else is in the steps."""
    rows = Rows(shape, DType.FLOAT32)
    inputs = rows.inputs(sum(cuts))
    expected = rows.expected(inputs)
    others = [rows.inputs(5, seed=mate) for mate in range(mates)]
    start, parts = 0, []
    for cut in cuts:
        out = rows.step(
            [*others, inputs[start : start + cut]], [*[0] * mates, start], [*range(mates), 4]
        )
        parts.append(out[-1])
        start += cut
    np.testing.assert_allclose(np.concatenate(parts), expected, rtol=5e-4, atol=5e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_save_in_a_row_is_the_state_at_that_token(shape: DeltaShape) -> None:
    rows = Rows(shape, DType.FLOAT32)
    first, second = rows.inputs(100), rows.inputs(40, seed=1)
    whole = rows.step([first, second], [0, 0], [0, 1], [(0, 16, 3), (0, 80, 4), (1, 1, 5)])
    for inputs, end, slot in ((first, 16, 3), (first, 80, 4), (second, 1, 5)):
        alone = Rows(shape, DType.FLOAT32)
        alone.step([inputs[:end]], [0], [2])
        for part in ("memory", "conv"):
            saved = array(getattr(rows.states, part))[slot, LAYER]
            kept = array(getattr(alone.states, part))[2, LAYER]
            np.testing.assert_allclose(saved, kept, rtol=1e-4, atol=1e-5)
    (rest,) = rows.step([first[80:]], [80], [4])
    np.testing.assert_allclose(rest, whole[0][80:], rtol=5e-4, atol=5e-5)
    assert np.isnan(array(rows.states.memory)[[0, 1, 3, 5], 1 - LAYER]).all(), "another layer's"


@pytest.mark.parametrize("shape", SHAPES)
def test_many_rows_of_one_token_side_by_side(shape: DeltaShape) -> None:
    """First tokens and later ones, some of whose states are copied, beside a longer row."""
    num_rows = 35
    rows = Rows(shape, DType.FLOAT32, num_slots=2 * num_rows)
    inputs = [rows.inputs(3, seed=seed) for seed in range(num_rows)]
    starts = [index % 3 for index in range(num_rows)]
    slots = [(8 * index) % num_rows for index in range(num_rows)]
    for values, start, slot in zip(inputs, starts, slots, strict=True):
        if start:
            rows.step([values[:start]], [0], [slot])
    saved = [index for index in range(num_rows) if index % 4 == 1]
    singles = [v[start : start + 1] for v, start in zip(inputs, starts, strict=True)]
    longer = rows.inputs(9, seed=99)
    out = rows.step(
        [*singles, longer],
        [*starts, 0],
        [*slots, -1],
        [(index, 1, num_rows + slots[index]) for index in saved],
    )
    for index, (values, start) in enumerate(zip(inputs, starts, strict=True)):
        expected = rows.expected(values[: start + 1])[-1:]
        np.testing.assert_allclose(out[index], expected, rtol=5e-4, atol=5e-5)
    np.testing.assert_allclose(out[-1], rows.expected(longer), rtol=5e-4, atol=5e-5)
    for part in (rows.states.memory, rows.states.conv):
        held = array(part)[:, LAYER]
        copies = [num_rows + slots[index] for index in saved]
        np.testing.assert_array_equal(held[copies], held[[slots[index] for index in saved]])
        others = [slot for slot in range(num_rows, 2 * num_rows) if slot not in copies]
        assert np.isnan(held[others]).all()


def test_copied_states_go_on_alike_and_rows_without_a_slot_leave_nothing() -> None:
    rows = Rows(SHAPES[1], DType.FLOAT32)
    inputs = rows.inputs(50)
    rows.step([inputs[:30]], [0], [0])
    BACKEND.copy_states(rows.states, [0], [5])
    before = [array(part).copy() for part in (rows.states.memory, rows.states.conv)]
    rows.step([rows.inputs(3)], [0], [-1])
    for part, kept in zip((rows.states.memory, rows.states.conv), before, strict=True):
        np.testing.assert_array_equal(array(part)[:6], kept[:6])
    one, two = rows.step([inputs[30:], inputs[30:]], [30, 30], [0, 5])
    np.testing.assert_array_equal(one, two)


def test_strong_decay_stays_finite() -> None:
    """Between distant tokens of a chunk the decay is below what float32 holds."""
    heads, count = 2, 130
    rng = np.random.default_rng(0)
    keys, values = (rng.standard_normal((heads, count, 8)).astype(np.float32) for _ in range(2))
    log_decay = np.full((heads, count), -40, np.float32)
    log_decay[:, ::7] = 0
    inputs = DeltaInputs(keys, keys, values, log_decay, np.full((heads, count), 0.5, np.float32))
    memory = np.zeros((heads, 8, 8), np.float32)
    out = np.empty_like(values)
    with np.errstate(over="raise", invalid="raise"):
        run_delta_rule(inputs, memory, out)
    assert np.isfinite(out).all() and np.isfinite(memory).all()


def test_softplus_far_out() -> None:
    values = np.array([-80, -1, 0, 1, 19.9, 20.1, 1e4], np.float32)
    np.testing.assert_allclose(softplus(values), np.logaddexp(0, values.astype(float)), rtol=1e-6)


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16])
def test_sigmoid_mul(dtype: DType) -> None:
    gates, out = random((5, 9), dtype, scale=4), random((5, 4), dtype, seed=1)
    before = array(out).copy()
    OPS.sigmoid_mul(3, gates, 5, out)
    share = 1 / (1 + np.exp(-array(gates)[:3, 5:].astype(np.float64)))
    check(array(out)[:3], before[:3] * share, dtype, roundings=2)
    np.testing.assert_array_equal(array(out)[3:], before[3:])


def test_norm_weights_in_float32_are_multiplied_unrounded() -> None:
    """As transformers does where weights are kept as their distance from one."""
    x = random((4, 33), DType.BFLOAT16)
    weight = random((33,), DType.FLOAT32, seed=1)
    out = BACKEND.empty((4, 33), DType.BFLOAT16)
    BACKEND.ops.rms_norm(4, x, weight, 1e-6, out)
    exact = naive.rms_norm(array(x), array(weight), 1e-6).astype(np.float32)
    assert (array(out) == naive.bfloat16(exact)).mean() > 0.99
    heads = random((4, 33), DType.BFLOAT16)
    BACKEND.ops.head_norm(4, heads, Tensor((1, 33), DType.FLOAT32, array(weight)[None]), 1e-6)
    np.testing.assert_array_equal(array(heads), array(out))


def test_more_states_than_memory_are_refused() -> None:
    layout = StateLayout(
        num_layers=100,
        num_heads=64,
        key_dim=1024,
        value_dim=1024,
        conv_width=1,
        conv_history=3,
        dtype=DType.BFLOAT16,
    )
    with pytest.raises(ConfigError, match=r"1000 recurrent states need .* lower --max-num-seqs"):
        NumpyBackend().state_pool(layout, 1000)


def test_slot_bytes_count_the_memory_in_float32() -> None:
    layout = StateLayout(
        num_layers=24,
        num_heads=32,
        key_dim=128,
        value_dim=128,
        conv_width=8192,
        conv_history=3,
        dtype=DType.BFLOAT16,
    )
    assert layout.slot_bytes == int(49.125 * 2**20)
    pool: StatePool = BACKEND.state_pool(layout, 2)
    assert array(pool.memory).shape == (3, 24, 32, 128, 128)
