"""Models that differ in anything have identities that differ; copies have the same."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest

from pegainfer_core.backend import DType, KvLayout
from pegainfer_core.contract import CoreOptions, LaunchContext
from pegainfer_core.offload import identity as identity_module
from pegainfer_core.offload.identity import model_identity
from pegainfer_core.weights import ConfigError

SIZES = {"embed": 3 << 20, "a.weight": 40_000, "a.norm": 64, "b.weight": 5000, "b.bias": 2}
LAYOUT = KvLayout(num_layers=2, num_kv_heads=1, head_dim=8, page_tokens=16, dtype=DType.BFLOAT16)
SHARDS = {"model-1.safetensors": ("embed", "a.norm"), "model-2.safetensors": (
    "a.weight", "b.weight", "b.bias")}  # fmt: skip


def write_shard(path: Path, sizes: dict[str, int]) -> dict[str, int]:
    """Returns where each tensor begins."""
    header, offset = {}, 0
    for name, size in sizes.items():
        entry = {"dtype": "U8", "shape": [size], "data_offsets": [offset, offset + size]}
        header[name] = entry
        offset += size
    text = json.dumps(header).encode()
    content = random.Random(path.name).randbytes(offset)
    path.write_bytes(struct.pack("<Q", len(text)) + text + content)
    starts = {name: entry["data_offsets"][0] for name, entry in header.items()}
    return {name: 8 + len(text) + start for name, start in starts.items()}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"hidden_size": 8}')
    (folder / "tokenizer.json").write_text('{"vocab": {}}')
    for name, tensors in SHARDS.items():
        write_shard(folder / name, {tensor: SIZES[tensor] for tensor in tensors})
    return folder


def identity(folder: Path, **changes: object) -> str:
    options = CoreOptions(
        load_format="dummy" if changes.pop("dummy", False) else "auto",
        seed=int(str(changes.pop("seed", 0))),
        tp=int(str(changes.pop("tp", 1))),
    )
    context = LaunchContext(
        model_dir=str(folder),
        family=str(changes.pop("family", "qwen3")),
        entry_point="plugin",
        options=options,
    )
    layout = msgspec.structs.replace(LAYOUT, **changes.pop("layout", {}))  # type: ignore[arg-type]
    words = {"backend": "numpy", "dtype": "float32", **changes}
    return model_identity(context, {0: layout}, **words)  # type: ignore[arg-type]


def spans(folder: Path) -> dict[str, tuple[Path, int, int]]:
    """File, first and last byte of each tensor."""
    found = {}
    for shard in SHARDS:
        content = (folder / shard).read_bytes()
        length = int.from_bytes(content[:8], "little")
        for name, entry in json.loads(content[8 : 8 + length]).items():
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            found[name] = (folder / shard, begin, end - 1)
    return found


def flip(path: Path, offset: int) -> None:
    """Change one bit, and nothing that a folder listing would show."""
    times = path.stat()
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_copy_is_the_same_model(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "copy", copy_function=shutil.copyfile)
    assert identity(tmp_path / "copy") == identity(model)
    assert len(identity(model)) == 64 and int(identity(model), 16)


@pytest.mark.parametrize("where", ["first", "middle", "last"])
@pytest.mark.parametrize("tensor", SIZES)
def test_one_value_of_any_tensor_tells_models_apart(model: Path, tensor: str, where: str) -> None:
    before = identity(model)
    path, first, last = spans(model)[tensor]
    offset = {"first": first, "middle": (first + last) // 2, "last": last}[where]
    flip(path, offset)
    assert identity(model) != before
    flip(path, offset)
    assert identity(model) == before


def test_long_tensors_are_sampled_all_along(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity_module, "_STRIDE_BYTES", 1 << 18)
    before = identity(model)
    path, first, last = spans(model)["embed"]
    for offset in range(first, last, 1 << 18):
        flip(path, offset + 4095)
        assert identity(model) != before
        flip(path, offset + 4095)


def test_what_lies_between_samples_is_not_seen(model: Path) -> None:
    """The documented limit: should this fail, sampling got better, and its page wants a word."""
    before = identity(model)
    path, first, _ = spans(model)["embed"]
    flip(path, first + 8192)
    assert identity(model) == before


def test_values_spread_over_a_tensor_are_seen(model: Path) -> None:
    """As any training leaves them: here every hundredth byte of the longest tensor."""
    before = identity(model)
    path, first, last = spans(model)["embed"]
    content = bytearray(path.read_bytes())
    for offset in range(first + 8192, last, 100):
        content[offset] ^= 1
    path.write_bytes(content)
    assert identity(model) != before


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "config.json").write_text('{"hidden_size": 9}'),
        lambda folder: (folder / "tokenizer.json").write_text('{"vocab": {"a": 1}}'),
        lambda folder: (folder / "tokenizer.json").unlink(),
        lambda folder: (folder / "merges.txt").write_text("a b"),
        lambda folder: (folder / "qwen.tiktoken").write_text("YQ== 0"),
        lambda folder: (folder / "model-2.safetensors").unlink(),
        lambda folder: shutil.copy(folder / "model-2.safetensors", folder / "z.safetensors"),
        lambda folder: write_shard(folder / "model-2.safetensors", {"a.weight": 40_000}),
    ],
    ids=["config", "tokenizer", "no tokenizer", "merges", "tiktoken", "no shard", "shard", "size"],
)
def test_files_tell_models_apart(model: Path, change: Callable[[Path], object]) -> None:
    before = identity(model)
    change(model)
    assert identity(model) != before


def test_renamed_tensors_tell_models_apart(model: Path) -> None:
    before = identity(model)
    path = model / "model-2.safetensors"
    path.write_bytes(path.read_bytes().replace(b"a.weight", b"c.weight"))
    assert identity(model) != before


@pytest.mark.parametrize(
    "changes",
    [
        {"family": "qwen35"},
        {"backend": "cuda"},
        {"dtype": "bfloat16"},
        {"numerics": "kernels 2"},
        {"tp": 2},
        {"layout": {"page_tokens": 32}},
        {"layout": {"dtype": DType.FLOAT32}},
        {"layout": {"num_layers": 3}},
        {"dummy": True},
    ],
    ids=str,
)
def test_what_computes_the_pages_tells_them_apart(model: Path, changes: dict[str, object]) -> None:
    assert identity(model, **changes) != identity(model)


def test_the_numerics_version_tells_releases_apart(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = identity(model)
    monkeypatch.setattr(identity_module, "NUMERICS_VERSION", 2)
    assert identity(model) != before


def test_the_seed_matters_for_dummy_weights_alone(model: Path) -> None:
    assert identity(model, seed=1) == identity(model, seed=2)
    assert identity(model, dummy=True, seed=1) != identity(model, dummy=True, seed=2)
    before = identity(model, dummy=True)
    for shard in SHARDS:
        (model / shard).unlink()
    assert identity(model, dummy=True) == before


def test_templates_and_readmes_do_not_matter(model: Path) -> None:
    before = identity(model)
    (model / "README.md").write_text("hello")
    (model / "chat_template.jinja").write_text("{{ messages }}")
    (model / "generation_config.json").write_text("{}")
    assert identity(model) == before


def test_a_folder_without_weights_is_refused(model: Path) -> None:
    for shard in SHARDS:
        (model / shard).unlink()
    with pytest.raises(ConfigError, match="has no safetensors file"):
        identity(model)
    (model / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"config\.json: cannot be read: No such file"):
        identity(model)


def test_of_eight_gigabytes_little_is_read(tmp_path: Path) -> None:
    """Holes stand for the values."""
    (tmp_path / "config.json").write_text("{}")
    tensor_bytes = 20 << 20
    for shard in range(4):
        path = tmp_path / f"model-{shard}.safetensors"
        names = {f"layer.{shard}.{i}": 2 for i in range(100)}
        write_shard(path, names)
        header = {
            name: {
                "dtype": "U8",
                "shape": [tensor_bytes],
                "data_offsets": [i * tensor_bytes, (i + 1) * tensor_bytes],
            }
            for i, name in enumerate(names)
        }
        text = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text)
        os.truncate(path, 8 + len(text) + 100 * tensor_bytes)
    process = psutil.Process()
    before = process.io_counters().read_chars
    identity(tmp_path)
    assert 1 << 16 < process.io_counters().read_chars - before < 64 << 20
