"""Writes tensors as a checkpoint's safetensors files, in shards with an index when there are many.

Writes one tensor after the other, so that a model far larger than memory can be written.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, cast

import numpy as np

from pegainfer_core.weights.checkpoint import INDEX_NAME, SINGLE_NAME
from pegainfer_core.weights.config import FloatType
from pegainfer_core.weights.errors import ConfigError
from pegainfer_core.weights.float_convert import BYTES_PER_VALUE, encode_floats
from pegainfer_core.weights.loader import Progress
from pegainfer_core.weights.source import TensorSource

__all__ = ["write_safetensors"]

_CODES: Final = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
_MAX_SHARD_BYTES: Final = 5_000_000_000


class _Item(NamedTuple):
    name: str
    num_bytes: int


def write_safetensors(
    model_dir: Path,
    source: TensorSource,
    *,
    num_shards: int | None = None,
    progress: Progress | None = None,
) -> tuple[Path, ...]:
    """Write all tensors of a source into a folder.

    Args:
        model_dir: The folder; made if missing. Must hold no weights yet.
        source: The tensors; each is written in its own type.
        num_shards: Files to write (default: as many as 5 GB each need, one for small models).
        progress: Told of every tensor written.

    Returns:
        The weight files.

    Raises:
        ConfigError: The folder already holds weights, a tensor's type cannot be written, or there
            are fewer tensors than shards.
    """
    present = sorted(model_dir.glob("*.safetensors*"))
    if present:
        raise ConfigError(f"{present[0]} is already there; choose a folder without weights")
    items = [_Item(name, _num_bytes(source, name)) for name in source.names()]
    shards = _split(items, num_shards)
    model_dir.mkdir(parents=True, exist_ok=True)
    names = [
        SINGLE_NAME if len(shards) == 1 else f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        for i in range(len(shards))
    ]
    counter = _Counter(source, progress)
    for name, shard in zip(names, shards, strict=True):
        _write_file(model_dir / name, source, shard, counter)
    if len(shards) > 1:
        index = {
            "metadata": {"total_size": sum(item.num_bytes for item in items)},
            "weight_map": {
                item.name: name for name, shard in zip(names, shards, strict=True) for item in shard
            },
        }
        (model_dir / INDEX_NAME).write_text(json.dumps(index, indent=1), encoding="utf-8")
    return tuple(model_dir / name for name in names)


class _Counter:
    def __init__(self, source: TensorSource, progress: Progress | None) -> None:
        self._done = 0
        self._progress = progress
        self._total = sum(_num_values(source, name) for name in source.names())

    def add(self, num_values: int) -> None:
        self._done += num_values
        if self._progress is not None:
            self._progress(self._done, self._total)


def _num_values(source: TensorSource, name: str) -> int:
    return int(np.prod(source.shape(name), dtype=np.int64))


def _num_bytes(source: TensorSource, name: str) -> int:
    if source.dtype(name) not in _CODES:
        raise ConfigError(
            f"{source.where(name)}: tensor {name} is stored as {source.dtype(name)}; "
            f"only {', '.join(_CODES)} can be written"
        )
    return _num_values(source, name) * BYTES_PER_VALUE[source.dtype(name)]


def _split(items: Sequence[_Item], num_shards: int | None) -> list[list[_Item]]:
    """Into runs of about equal bytes, in order, none empty."""
    total = sum(item.num_bytes for item in items)
    count = num_shards or max(-(-total // _MAX_SHARD_BYTES), 1)
    if num_shards and num_shards > len(items):
        raise ConfigError(f"{len(items)} tensors cannot fill {num_shards} shards")
    count = min(count, max(len(items), 1))
    shards: list[list[_Item]] = [[]]
    position = 0
    for i, item in enumerate(items):
        full = position >= total * len(shards) / count
        needed = count - len(shards) >= len(items) - i
        if shards[-1] and len(shards) < count and (full or needed):
            shards.append([])
        shards[-1].append(item)
        position += item.num_bytes
    return shards


def _write_file(path: Path, source: TensorSource, items: list[_Item], counter: _Counter) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    position = 0
    for item in items:
        header[item.name] = {
            "dtype": _CODES[source.dtype(item.name)],
            "shape": list(source.shape(item.name)),
            "data_offsets": [position, position + item.num_bytes],
        }
        position += item.num_bytes
    encoded = json.dumps(header, separators=(",", ":")).encode()
    # The data starts at a multiple of 8, as the format asks.
    encoded += b" " * (-len(encoded) % 8)
    # A broken run must not leave a file that looks whole.
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for item in items:
            values = source.read_f32(item.name)
            file.write(encode_floats(values, cast(FloatType, source.dtype(item.name))).data)
            counter.add(values.size)
    os.replace(partial, path)
