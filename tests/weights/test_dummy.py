"""Seeded weights: reproducible, of the promised spread, and the same on disk."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegainfer_core.weights import (
    Checkpoint,
    ConfigError,
    DummyCheckpoint,
    FloatType,
    ParameterLoader,
    TensorKind,
    TensorSpec,
    round_floats,
    write_dummy,
)

SPECS = {
    "embed": TensorSpec((500, 256), "embedding"),
    "w": TensorSpec((300, 400)),
    "norm": TensorSpec((256,), "norm"),
    "router": TensorSpec((16, 256), "router", "float32"),
    "head": TensorSpec((500, 256), "head"),
}


#: SHA-256 of the values below, as float32.
PINNED = "c779c8e13835e7f92985e11c743c1f2e7b4157460b5e3b8bfe1f679a734ac5c5"


def dummy(seed: int = 0, dtype: FloatType = "bfloat16", **options: int) -> DummyCheckpoint:
    return DummyCheckpoint(SPECS, seed=seed, dtype=dtype, **options)


@pytest.mark.parametrize(
    ("kind", "shape", "mean", "std"),
    [
        ("embedding", (3000, 256), 0.0, 4 / 16),
        ("head", (3000, 256), 0.0, 4 / 16),
        ("matrix", (2000, 400), 0.0, 1 / 20),
        ("matrix", (4, 500, 400), 0.0, 1 / 20),
        ("router", (2000, 400), 0.0, 1.5 / 20),
        ("norm", (800_000,), 1.0, 0.4 / 12**0.5),
        ("zero_norm", (800_000,), 0.0, 0.4 / 12**0.5),
        ("bias", (800_000,), 0.0, 0.1),
    ],
)
def test_spreads(kind: TensorKind, shape: tuple[int, ...], mean: float, std: float) -> None:
    source = DummyCheckpoint({"x": TensorSpec(shape, kind)}, seed=1, dtype="float32")
    values = source.read_f32("x").astype(np.float64)
    assert values.mean() == pytest.approx(mean, abs=5 * std / values.size**0.5)
    assert values.std() == pytest.approx(std, rel=0.01)
    if "norm" in kind:
        assert np.abs(values - mean).max() <= 0.2
    else:
        # Shape of a normal distribution: shares within one, two and three deviations.
        for deviations, share in ((1, 0.6827), (2, 0.9545), (3, 0.9973)):
            assert (np.abs(values) < deviations * std).mean() == pytest.approx(share, abs=0.003)


def test_router_logits_spread() -> None:
    """Routers see normed inputs of unit size times norm weights of 1 +- 0.2."""
    source = DummyCheckpoint({"r": TensorSpec((64, 512), "router")}, seed=0, dtype="bfloat16")
    inputs = np.random.default_rng(0).normal(size=(200, 512)).astype(np.float32)
    logits = inputs @ source.read_f32("r").T
    assert logits.std(axis=1).min() >= 1.0


def test_streams_are_independent() -> None:
    specs = {name: TensorSpec((1 << 21,)) for name in ("a", "b")}
    a, b = (DummyCheckpoint(specs, seed=0, dtype="float32").read_f32(name) for name in specs)
    other = DummyCheckpoint(specs, seed=1, dtype="float32").read_f32("a")
    half = a.size // 2
    for left, right in ((a, b), (a, other), (a[:half], a[half:]), (a[:-1], a[1:])):
        assert abs(float(np.corrcoef(left, right)[0, 1])) < 0.005


def test_same_values_with_any_number_of_threads_in_any_order() -> None:
    specs = {"big": TensorSpec((3, 1_000_001)), "small": TensorSpec((5, 7))}
    reference = DummyCheckpoint(specs, seed=7, dtype="bfloat16", num_threads=1)
    big, small = reference.read_f32("big"), reference.read_f32("small")
    with DummyCheckpoint(specs, seed=7, dtype="bfloat16", num_threads=4) as source:
        np.testing.assert_array_equal(source.read_f32("small"), small)
        np.testing.assert_array_equal(source.read_f32("big"), big)
        wide = np.zeros((3, 1_000_003), np.float32)
        source.read_f32("big", wide[:, 1:-1])
        np.testing.assert_array_equal(wide[:, 1:-1], big)
    alone = DummyCheckpoint({"small": specs["small"]}, seed=7, dtype="bfloat16")
    np.testing.assert_array_equal(alone.read_f32("small"), small)


@settings(max_examples=40, deadline=None)
@given(size=st.integers(0, 70_000), seed=st.integers(-5, 5))
def test_a_prefix_of_a_larger_tensor(size: int, seed: int) -> None:
    """The values are a stream: how they are drawn in portions does not show."""
    larger = DummyCheckpoint({"x": TensorSpec((70_000,), "bias")}, seed=seed, dtype="float32")
    smaller = DummyCheckpoint({"x": TensorSpec((size,), "bias")}, seed=seed, dtype="float32")
    np.testing.assert_array_equal(smaller.read_f32("x"), larger.read_f32("x")[:size])


def test_values_are_pinned() -> None:
    """The same everywhere: goldens and benchmarks are made from these streams."""
    values = b"".join(dummy(seed=3).read_f32(name).astype("<f4").tobytes() for name in SPECS)
    assert hashlib.sha256(values).hexdigest() == PINNED


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_values_are_what_the_type_holds(dtype: FloatType) -> None:
    source = dummy(dtype=dtype)
    for name in source.names():
        values = source.read_f32(name)
        rounded = values.copy()
        round_floats(rounded, source.dtype(name))  # type: ignore[arg-type]
        np.testing.assert_array_equal(values, rounded)
    assert source.dtype("router") == "float32"


@pytest.mark.parametrize("num_shards", [None, 2])
def test_written_tensors_are_the_same(tmp_path: Path, num_shards: int | None) -> None:
    write_dummy(tmp_path, SPECS, seed=5, dtype="bfloat16", num_shards=num_shards)
    made = ParameterLoader(dummy(seed=5), SPECS, dtype="bfloat16")
    with Checkpoint(tmp_path) as checkpoint:
        read = ParameterLoader(checkpoint, SPECS, dtype="bfloat16")
        for name in SPECS:
            np.testing.assert_array_equal(read.read(name), made.read(name))
        assert checkpoint.dtype("router") == "float32"
        assert checkpoint.dtype("w") == "bfloat16"
    with pytest.raises(ConfigError, match="already there"):
        write_dummy(tmp_path, SPECS, seed=5, dtype="bfloat16")


def test_errors_say_that_the_values_are_made_up() -> None:
    with pytest.raises(ConfigError, match="dummy weights of seed 0: tensor gone is missing"):
        dummy().read_f32("gone")
