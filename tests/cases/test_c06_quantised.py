"""C06: a quantised checkpoint that nothing here can compute is refused, never read as numbers.

Seen elsewhere: the raw values are cast without their scales, the model loads and answers noise.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pegainfer_core.plugin import SelectionError
from pegainfer_core.testing.tiny import edit_config
from pegainfer_core.weights import Checkpoint, ConfigError
from tests.cases.answers import greedy, run
from tests.cases.conftest import F3, LoadLLM
from tests.hf import cases, golden

Config = dict[str, object]

FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
INT4 = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32}}},
}
SUPPORTED = "supported: .*bfloat16, float16 or float32"
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
WIDTHS = {"F8_E4M3": 1, "F8_E5M2": 1, "I8": 1, "U8": 1, "F32": 4, "I32": 4, "I64": 8}


def write_raw(folder: Path, tensors: dict[str, tuple[str, tuple[int, ...]]]) -> None:
    """Replace the weights by a safetensors file of such types and shapes, full of small values."""
    header: dict[str, object] = {}
    end = 0
    for name, (code, shape) in tensors.items():
        begin, end = end, end + math.prod(shape) * WIDTHS[code]
        header[name] = {"dtype": code, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    body = np.random.default_rng(0).integers(0, 60, end, np.uint8).tobytes()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + body)


def stored(folder: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    with Checkpoint(folder) as checkpoint:
        return {name: ("F32", checkpoint.shape(name)) for name in checkpoint.names()}


def block_fp8(folder: Path, code: str = "F8_E4M3") -> None:
    tensors = {}
    for name, (plain, shape) in stored(folder).items():
        is_matrix = any(part in name for part in PROJECTIONS)
        tensors[name] = (code if is_matrix else plain, shape)
        if is_matrix:
            scales = tuple(-(-extent // 128) for extent in shape)
            tensors[f"{name}_scale_inv"] = ("F32", scales)
    write_raw(folder, tensors)


def fp8_without_scales(folder: Path) -> None:
    block_fp8(folder)
    tensors = stored_codes(folder)
    write_raw(folder, {n: t for n, t in tensors.items() if not n.endswith("_scale_inv")})


def stored_codes(folder: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    raw = (folder / "model.safetensors").read_bytes()
    header: dict[str, Any] = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    return {name: (entry["dtype"], tuple(entry["shape"])) for name, entry in header.items()}


def packed_int4(folder: Path) -> None:
    tensors = {}
    for name, (plain, shape) in stored(folder).items():
        if any(part in name for part in PROJECTIONS):
            rows, columns = shape
            stem = name.removesuffix("weight")
            tensors[f"{stem}weight_packed"] = ("I32", (rows, columns // 8))
            tensors[f"{stem}weight_scale"] = ("F32", (rows, columns // 32))
            tensors[f"{stem}weight_shape"] = ("I64", (2,))
        else:
            tensors[name] = (plain, shape)
    write_raw(folder, tensors)


def one_tensor(code: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        tensors = stored(folder)
        name = "model.layers.1.mlp.down_proj.weight"
        write_raw(folder, {**tensors, name: (code, tensors[name][1])})

    return write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return cases.build(F3, tmp_path / "m")


@pytest.mark.parametrize(
    ("keys", "method", "write"),
    [
        ({"quantization_config": FP8}, "fp8", block_fp8),
        ({"quantization_config": {"quant_method": "zzz"}}, "zzz", block_fp8),
        ({"text_config": {"quantization_config": FP8}}, "fp8", block_fp8),
        ({"quantization_config": INT4}, "compressed-tensors", packed_int4),
        ({"text_config": {"quantization_config": INT4}}, "compressed-tensors", packed_int4),
        ({"compression_config": INT4}, "compressed-tensors", packed_int4),
        ({"quantization_config": {"bits": 4, "group_size": 32}}, "unnamed", packed_int4),
        # The block alone decides, also when the tensors look plain: scales may be anywhere.
        ({"quantization_config": FP8}, "fp8", lambda folder: None),
    ],
)
def test_a_stated_method_is_refused_by_name(
    keys: Config,
    method: str,
    write: Callable[[Path], None],
    folder: Path,
    load: LoadLLM,
) -> None:
    write(folder)
    edit_config(folder, lambda config: config.update(keys))
    message = rf"{method!r}, which is not supported here; {SUPPORTED}"
    with pytest.raises(SelectionError, match=message):
        load(folder)
    with pytest.raises(ConfigError, match=message):
        load(folder, family="qwen3")


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (block_fp8, "float8_e4m3|_scale_inv"),
        (lambda folder: block_fp8(folder, "F8_E5M2"), "float8_e5m2|_scale_inv"),
        (fp8_without_scales, "float8_e4m3"),
        (packed_int4, "q_proj.weight.* missing; .*_packed is stored as int32, so .* quantized"),
        *((one_tensor(code), "down_proj.weight is stored as") for code in WIDTHS if code != "F32"),
    ],
)
@pytest.mark.parametrize("dtype", ["bfloat16", None])
def test_packed_tensors_without_a_word_in_the_config(
    write: Callable[[Path], None],
    message: str,
    dtype: str | None,
    folder: Path,
    load: LoadLLM,
) -> None:
    write(folder)
    edit_config(folder, lambda config: config.update(dtype=dtype))
    with pytest.raises(ConfigError, match=message):
        load(folder)


def test_a_quantised_dtype_is_refused(folder: Path, load: LoadLLM) -> None:
    edit_config(folder, lambda config: config.update(dtype="float8_e4m3fn"))
    with pytest.raises(ConfigError, match=r"dtype is 'float8_e4m3fn'; supported are bfloat16"):
        load(folder)


@pytest.mark.parametrize("empty", [None, {}])
def test_an_empty_block_means_nothing(empty: object, folder: Path, load: LoadLLM) -> None:
    edit_config(folder, lambda config: config.update(quantization_config=empty))
    expected = golden.load(F3).prompts[5]
    (output,) = run(load(folder), [expected.prompt.tolist()], greedy(64))
    assert output.token_ids == expected.greedy.tolist()
