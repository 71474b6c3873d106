"""Reading and writing checkpoints: number formats, shards, and every kind of damage."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegainfer_core.weights import (
    ArraySource,
    Checkpoint,
    ConfigError,
    FloatArray,
    FloatType,
    compute_dtype,
    round_floats,
    write_safetensors,
)


def build_file(
    path: Path, header: object, data: bytes = b"", header_bytes: int | None = None
) -> None:
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    length = len(encoded) if header_bytes is None else header_bytes
    path.write_bytes(length.to_bytes(8, "little") + encoded + data)


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def arrays(seed: int = 0) -> dict[str, FloatArray]:
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "embed": (50, 8),
        "a": (3, 5),
        "vector": (7,),
        "scalar": (),
        "empty": (0, 4),
        "cube": (2, 3, 4),
    }
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def bfloat16_by_value(values: FloatArray) -> FloatArray:
    """Round to nearest even by arithmetic on the value, not on its bits."""
    mantissa, exponent = np.frexp(values.astype(np.float64))
    # Below the least normal number the spacing stays what it is there.
    exponent = np.maximum(exponent, -125)
    step = np.ldexp(1.0, exponent - 8)
    rounded = np.rint(np.ldexp(mantissa, np.frexp(values.astype(np.float64))[1]) / step) * step
    return rounded.astype(np.float32)


# ------------------------------------------------------------------ number formats


@given(
    st.lists(
        st.floats(
            width=32,
            allow_nan=False,
            allow_infinity=False,
            max_value=2.0**126,
            min_value=-(2.0**126),
        ),
        min_size=1,
        max_size=50,
    )
)
def test_bfloat16_rounds_to_nearest_even(numbers: list[float]) -> None:
    values = np.array(numbers, np.float32)
    expected = bfloat16_by_value(values)
    round_floats(values, "bfloat16")
    np.testing.assert_array_equal(values, expected)


def test_bfloat16_edges() -> None:
    bits = np.array(
        [0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x80000000],
        np.uint32,
    )
    values = bits.view(np.float32)
    round_floats(values, "bfloat16")
    # A tie goes to the even neighbour; the largest float32 lies beyond the largest bfloat16.
    expected = [0x3F800000, 0x3F820000, 0x3F810000, 0x7F800000, 0x7F800000, 0xFF800000, 0x80000000]
    assert [hex(value) for value in values.view(np.uint32)] == [hex(value) for value in expected]
    nans = np.array([0x7FFFFFFF, 0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    round_floats(nans, "bfloat16")
    assert np.isnan(nans).all()


def test_rounding_needs_a_contiguous_array() -> None:
    with pytest.raises(ValueError, match="contiguous"):
        round_floats(np.zeros((4, 4), np.float32).T[1:], "bfloat16")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("num_shards", [1, 3])
def test_round_trip(tmp_path: Path, dtype: FloatType, num_shards: int) -> None:
    stored = arrays()
    paths = write_safetensors(tmp_path, ArraySource(stored, dtype), num_shards=num_shards)
    assert len(paths) == num_shards
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [path.name for path in paths] + (["model.safetensors.index.json"] if num_shards > 1 else [])
    )
    with Checkpoint(tmp_path) as checkpoint:
        assert set(checkpoint.names()) == set(stored)
        assert compute_dtype({}, checkpoint) == dtype
        for name, values in stored.items():
            assert checkpoint.shape(name) == values.shape
            assert checkpoint.dtype(name) == dtype
            expected = values.copy()
            round_floats(expected, dtype)
            np.testing.assert_array_equal(checkpoint.read_f32(name), expected)


def test_known_bytes(tmp_path: Path) -> None:
    """Checks the reader against bytes that the writer did not make."""
    header = {
        "__metadata__": {"format": "pt"},
        "b": entry("BF16", [2], 0, 4),
        "h": entry("F16", [2], 4, 8),
        "f": entry("F32", [1, 1], 8, 12),
    }
    data = bytes.fromhex("803f 00c0") + bytes.fromhex("003c 00c0") + bytes.fromhex("0000c03f")
    build_file(tmp_path / "model.safetensors", header, data)
    with Checkpoint(tmp_path) as checkpoint:
        assert checkpoint.read_f32("b").tolist() == [1.0, -2.0]
        assert checkpoint.read_f32("h").tolist() == [1.0, -2.0]
        assert checkpoint.read_f32("f").tolist() == [[1.5]]


@settings(max_examples=30, deadline=None)
@given(offset=st.integers(0, 9), seed=st.integers(0, 99))
def test_unaligned_data(tmp_path_factory: pytest.TempPathFactory, offset: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=5).astype("<f4")
    header = json.dumps(
        {"pad": entry("U8", [offset], 0, offset), "v": entry("F32", [5], offset, offset + 20)}
    )
    folder = tmp_path_factory.mktemp("unaligned")
    build_file(folder / "model.safetensors", header.encode(), b"x" * offset + values.tobytes())
    with Checkpoint(folder) as checkpoint:
        np.testing.assert_array_equal(checkpoint.read_f32("v"), values)


def test_reads_into_views_of_a_larger_array(tmp_path: Path) -> None:
    stored = {"q": np.arange(12, dtype=np.float32).reshape(4, 3), "k": -np.ones((2, 3), np.float32)}
    write_safetensors(tmp_path, ArraySource(stored, "bfloat16"))
    with Checkpoint(tmp_path) as checkpoint:
        rows = np.full((7, 3), 9, np.float32)
        assert checkpoint.read_f32("q", rows[:4]).base is rows
        checkpoint.read_f32("k", rows[4:6])
        np.testing.assert_array_equal(rows, [*stored["q"], *stored["k"], [9, 9, 9]])
        columns = np.full((4, 8), 9, np.float32)
        checkpoint.read_f32("q", columns[:, 2:5])
        checkpoint.read_f32("q", columns[::1, ::-1][:, :3])
        np.testing.assert_array_equal(columns[:, 5:], stored["q"][:, ::-1])
        np.testing.assert_array_equal(columns[:, 2:5], stored["q"])
        np.testing.assert_array_equal(columns[:, :2], 9)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_large_tensors_are_read_in_pieces(tmp_path: Path, num_threads: int) -> None:
    values = np.arange(5_000_001, dtype=np.float32)
    wide = values[:4_800_000].reshape(3, -1)
    write_safetensors(tmp_path, ArraySource({"x": values, "wide": wide}))
    with Checkpoint(tmp_path, num_threads=num_threads) as checkpoint:
        np.testing.assert_array_equal(checkpoint.read_f32("x"), values)
        rows = np.zeros((3, 1_600_002), np.float32)
        checkpoint.read_f32("wide", rows[:, 1:-1])
        np.testing.assert_array_equal(rows[:, 1:-1], wide)
        rounded = checkpoint.read_f32("x", round_to="bfloat16")
    expected = values.copy()
    round_floats(expected, "bfloat16")
    np.testing.assert_array_equal(rounded, expected)


def test_read_rounds_to_the_type_asked_for(tmp_path: Path) -> None:
    values = np.array([1.00390625 + 2**-12, 1e-8], np.float32)
    write_safetensors(tmp_path, ArraySource({"x": values}))
    with Checkpoint(tmp_path) as checkpoint:
        assert checkpoint.read_f32("x", round_to="bfloat16")[0] == np.float32(1.0078125)
        assert checkpoint.read_f32("x", round_to="float16").tolist() == [1.00390625, 0.0]
        assert checkpoint.read_f32("x").tolist() == values.tolist()


def test_dtype_of_most_values_counts(tmp_path: Path) -> None:
    header = {"a": entry("BF16", [4], 0, 8), "b": entry("F32", [3], 8, 20)}
    build_file(tmp_path / "model.safetensors", header, bytes(20))
    with Checkpoint(tmp_path) as checkpoint:
        assert compute_dtype({}, checkpoint) == "bfloat16"
        assert compute_dtype({"torch_dtype": "float32"}, checkpoint) == "float32"


# ------------------------------------------------------------------ what must not be read


@pytest.mark.parametrize(
    ("code", "bits", "name"),
    [
        ("F8_E4M3", 8, "float8_e4m3"),
        ("F8_E5M2", 8, "float8_e5m2"),
        ("I32", 32, "int32"),
        ("U8", 8, "uint8"),
        ("F4", 4, "float4_e2m1"),
        ("BOOL", 8, "bool"),
        ("F64", 64, "float64"),
    ],
)
def test_other_types_never_reach_a_float_parameter(
    tmp_path: Path, code: str, bits: int, name: str
) -> None:
    size = 4 * bits // 8
    build_file(tmp_path / "model.safetensors", {"w": entry(code, [2, 2], 0, size)}, bytes(size))
    with Checkpoint(tmp_path) as checkpoint:
        assert checkpoint.dtype("w") == name
        for out in (None, np.zeros((2, 2), np.float32)):
            with pytest.raises(
                ConfigError, match=rf"model\.safetensors: tensor w is stored as {name}"
            ):
                checkpoint.read_f32("w", out)
        with pytest.raises(ConfigError, match=f"mostly {name}"):
            compute_dtype({}, checkpoint)


def test_wrong_shape_names_tensor_file_and_both_shapes(tmp_path: Path) -> None:
    write_safetensors(tmp_path, ArraySource({"w": np.zeros((2, 3), np.float32)}))
    with Checkpoint(tmp_path) as checkpoint:
        for read in (
            lambda: checkpoint.expect("w", (3, 2)),
            lambda: checkpoint.read_f32("w", np.zeros((3, 2), np.float32)),
        ):
            with pytest.raises(
                ConfigError, match=r"model\.safetensors: tensor w has shape \(2, 3\).*\(3, 2\)"
            ):
                read()
        with pytest.raises(ConfigError, match="tensor gone is missing") as caught:
            checkpoint.read_f32("gone")
        assert str(tmp_path) in str(caught.value)


GOOD = {"w": entry("F32", [2], 0, 8)}

DAMAGED: dict[str, tuple[object, bytes, int | None, str]] = {
    "header too long": (GOOD, bytes(8), 1 << 40, "is longer than the format's"),
    "header beyond the file": (GOOD, bytes(8), 4096, "header of 4096 bytes, but the file has"),
    "data cut": (GOOD, bytes(7), None, "w ends at byte .*truncated"),
    "data longer": (GOOD, bytes(9), None, "its header describes"),
    "not JSON": (b"{]", b"", None, "header is not valid JSON"),
    "not text": (b"\xff\xfe\x00", b"", None, "header is not valid JSON"),
    "not an object": ([1], b"", None, "header is a JSON list"),
    "entry not an object": ({"w": 3}, b"", None, "header entry of w is malformed: 3"),
    "no dtype": ({"w": {"shape": [2], "data_offsets": [0, 8]}}, bytes(8), None, "malformed"),
    "bad shape": ({"w": entry("F32", [-2], 0, 8)}, bytes(8), None, "malformed"),
    "fraction in shape": ({"w": {**GOOD["w"], "shape": [2.0]}}, bytes(8), None, "malformed"),
    "truth as offset": ({"w": {**GOOD["w"], "data_offsets": [True, 8]}}, b"", None, "malformed"),
    "three offsets": ({"w": {**GOOD["w"], "data_offsets": [0, 4, 8]}}, bytes(8), None, "malformed"),
    "unknown type": ({"w": entry("Q3", [2], 0, 8)}, bytes(8), None, "unknown type 'Q3'"),
    "shape and bytes": (
        {"w": entry("F32", [3], 0, 8)}, bytes(8), None,
        r"w has shape \[3\] of float32, but 8 bytes",
    ),
    "backwards": ({"w": entry("F32", [2], 8, 0)}, bytes(8), None, "but -8 bytes"),
    "overlap": (
        {"v": entry("F32", [2], 0, 8), "w": entry("F32", [2], 4, 12)}, bytes(12), None,
        "w overlaps v",
    ),
    "hole": (
        {"v": entry("F32", [2], 0, 8), "w": entry("F32", [2], 12, 20)}, bytes(20), None,
        "w leaves a hole after v",
    ),
    "twice": (
        b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
        b'"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', bytes(8), None,
        "names w twice",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", DAMAGED)
def test_damaged_file_is_named(tmp_path: Path, fault: str) -> None:
    header, data, header_bytes, message = DAMAGED[fault]
    build_file(tmp_path / "model.safetensors", header, data, header_bytes)
    with pytest.raises(ConfigError, match=message) as caught:
        Checkpoint(tmp_path)
    assert str(tmp_path / "model.safetensors") in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has 0 bytes; truncated"),
        (b"\x08\x00", "has 2 bytes; truncated"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
    ],
)
def test_files_that_are_no_safetensors(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        Checkpoint(tmp_path)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_change_of_the_header_is_harmless(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A flipped byte may rename or retype a tensor, but no read leaves the file or crashes."""
    folder = tmp_path_factory.mktemp("flip")
    write_safetensors(folder, ArraySource({"w": np.ones((2, 3), np.float32)}))
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 25))
    content[at] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        with Checkpoint(folder) as checkpoint:
            for name in checkpoint.names():
                checkpoint.read_f32(name)
    except ConfigError as error:
        assert str(folder) in str(error)


# ------------------------------------------------------------------ shards


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    write_safetensors(tmp_path, ArraySource(arrays(), "bfloat16"), num_shards=3)
    return tmp_path


def test_missing_shard_is_named(sharded: Path) -> None:
    (sharded / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"model-00002-of-00003\.safetensors: shard is missing"):
        Checkpoint(sharded)
    (sharded / "model.safetensors.index.json").unlink()
    with pytest.raises(ConfigError, match=r"model-00002-of-00003\.safetensors: shard is missing"):
        Checkpoint(sharded)


def test_shards_without_an_index(sharded: Path) -> None:
    (sharded / "model.safetensors.index.json").unlink()
    with Checkpoint(sharded) as checkpoint:
        assert set(checkpoint.names()) == set(arrays())


def test_tensor_missing_from_its_shard(sharded: Path) -> None:
    path = sharded / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["lost"] = "model-00003-of-00003.safetensors"
    path.write_text(json.dumps(index))
    with pytest.raises(ConfigError, match=r"00003-of-00003.*tensor lost is missing"):
        Checkpoint(sharded)


def test_tensor_in_two_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_safetensors(tmp_path / name, ArraySource({"w": np.zeros(2, np.float32)}))
        (tmp_path / name / "model.safetensors").rename(tmp_path / f"{name}.safetensors")
    with pytest.raises(ConfigError, match=r"b\.safetensors: tensor w is also in a\.safetensors"):
        Checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("{}", "weight_map is missing"),
        ('{"weight_map": {"w": 1}}', "lies in 1"),
        ('{"weight_map": {"w": "../other.safetensors"}}', "expected a file name"),
        ("[", "not valid JSON"),
    ],
)
def test_faulty_index(tmp_path: Path, index: str, message: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ConfigError, match=message) as caught:
        Checkpoint(tmp_path)
    assert "model.safetensors.index.json" in str(caught.value)


def test_no_weights_at_all(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(ConfigError, match="has no safetensors file"):
        Checkpoint(tmp_path)


def test_single_file_wins_over_a_stale_index(sharded: Path) -> None:
    write_safetensors(sharded / "new", ArraySource({"w": np.zeros(2, np.float32)}))
    (sharded / "new" / "model.safetensors").rename(sharded / "model.safetensors")
    with Checkpoint(sharded) as checkpoint:
        assert checkpoint.names() == ("w",)


# ------------------------------------------------------------------ writing


def test_writer_never_replaces_weights(sharded: Path) -> None:
    before = {path: path.read_bytes() for path in sharded.iterdir()}
    with pytest.raises(ConfigError, match="already there; choose a folder without weights"):
        write_safetensors(sharded, ArraySource({"w": np.zeros(2, np.float32)}))
    assert {path: path.read_bytes() for path in sharded.iterdir()} == before


def test_more_shards_than_tensors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="1 tensors cannot fill 2 shards"):
        write_safetensors(tmp_path, ArraySource({"w": np.zeros(2, np.float32)}), num_shards=2)


@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=12), data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_split_keeps_every_tensor(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], data: st.DataObject
) -> None:
    num_shards = data.draw(st.integers(1, len(sizes)))
    folder = tmp_path_factory.mktemp("split")
    stored = {f"t{i}": np.full(size, i, np.float32) for i, size in enumerate(sizes)}
    paths = write_safetensors(folder, ArraySource(stored), num_shards=num_shards)
    assert len(paths) == num_shards
    with Checkpoint(folder) as checkpoint:
        for name, values in stored.items():
            np.testing.assert_array_equal(checkpoint.read_f32(name), values)
    seen: list[tuple[int, int]] = []
    write_safetensors(folder / "again", ArraySource(stored), progress=lambda *at: seen.append(at))
    assert seen[-1] == (sum(sizes), sum(sizes))
