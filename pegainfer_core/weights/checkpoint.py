"""The tensors of a checkpoint folder: one safetensors file, or shards with their index.

Knows no tensor by name. Holds no copy of anything it has read.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self, cast

import numpy as np

from pegainfer_core.weights.config import FloatType
from pegainfer_core.weights.errors import ConfigError
from pegainfer_core.weights.float_convert import (
    BYTES_PER_VALUE,
    FloatArray,
    decode_floats,
    round_floats,
)
from pegainfer_core.weights.json_file import read_json_object
from pegainfer_core.weights.safetensors_file import SafetensorsFile
from pegainfer_core.weights.source import StoredBytes, TensorSource

__all__ = ["INDEX_NAME", "SINGLE_NAME", "Checkpoint"]

SINGLE_NAME: Final = "model.safetensors"
INDEX_NAME: Final = "model.safetensors.index.json"

#: Work is cut into pieces of this many values, each by one thread.
_PIECE_VALUES: Final = 1 << 21


class Checkpoint(TensorSource):
    """The tensors of a checkpoint folder, read by memory map.

    Pages of the map are given back as they are converted, so that loading holds no more than the
    arrays being filled.

    Args:
        model_dir: The folder; `model.safetensors`, or the shards that the index names, or all its
            safetensors files when there is no index.
        num_threads: Threads that convert.

    Raises:
        ConfigError: No weights, a shard missing or damaged, a tensor twice, or one that the index
            names missing from its shard.
    """

    def __init__(self, model_dir: Path, *, num_threads: int = 2) -> None:
        self._model_dir = model_dir
        self._files: list[SafetensorsFile] = []
        self._file_of: dict[str, SafetensorsFile] = {}
        self._pool = ThreadPoolExecutor(num_threads, "weights")
        try:
            self._open_shards()
        except ConfigError:
            self.close()
            raise

    def _open_shards(self) -> None:
        index = _read_index(self._model_dir)
        for path in _shard_paths(self._model_dir, index):
            file = SafetensorsFile(path)
            self._files.append(file)
            for name in file.tensors:
                if name in self._file_of:
                    raise ConfigError(
                        f"{path}: tensor {name} is also in {self._file_of[name].path.name}; "
                        "remove the file that does not belong here"
                    )
                self._file_of[name] = file
        for name, shard in index.items():
            if name not in self._file_of:
                raise ConfigError(
                    f"{self._model_dir / shard}: tensor {name} is missing, though {INDEX_NAME} "
                    "lists it there; fetch the file again"
                )

    def names(self) -> tuple[str, ...]:
        """All tensors, file by file in the order of their bytes."""
        return tuple(self._file_of)

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    def where(self, name: str) -> str:
        """The tensor's file; the folder when there is no such tensor."""
        file = self._file_of.get(name)
        return str(file.path if file else self._model_dir)

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape."""
        return self._file_of[name].tensors[name].shape

    def dtype(self, name: str) -> str:
        """How a tensor is stored."""
        return self._file_of[name].tensors[name].dtype

    def stored_bytes(self, name: str) -> StoredBytes:
        """The tensor's part of its file."""
        file = self._file_of[name]
        tensor = file.tensors[name]
        return StoredBytes(file.path, tensor.begin, tensor.end)

    def _read_into(self, name: str, out: FloatArray, round_to: FloatType) -> None:
        # A contiguous array is cut anywhere, any other one along its first axis.
        flat = out.reshape(-1) if out.flags.c_contiguous else None
        rows = out if flat is None else flat
        row_values = max(out.size // max(len(rows), 1), 1)
        step = max(_PIECE_VALUES // row_values, 1)
        pieces = [slice(start, start + step) for start in range(0, len(rows), step)]

        def convert(piece: slice) -> None:
            self._convert(name, rows[piece], piece.start * row_values, round_to)

        if len(pieces) == 1:
            convert(pieces[0])
        else:
            list(self._pool.map(convert, pieces))

    def _convert(self, name: str, out: FloatArray, first_value: int, round_to: FloatType) -> None:
        file = self._file_of[name]
        stored = cast(FloatType, file.tensors[name].dtype)
        width = BYTES_PER_VALUE[stored]
        begin, end = first_value * width, (first_value + out.size) * width
        flat = out.reshape(-1) if out.flags.c_contiguous else np.empty(out.size, np.float32)
        decode_floats(file.raw(name)[begin:end], stored, flat)
        if round_to != stored:
            round_floats(flat, round_to)
        # Both carry a not-a-number through. Served, it would turn every answer into one token.
        if flat.size and not (np.isfinite(flat.min()) and np.isfinite(flat.max())):
            raise ConfigError(
                f"{file.path}: tensor {name} holds values that are not finite; "
                "the checkpoint is damaged, fetch it again"
            )
        if not out.flags.c_contiguous:
            out[...] = flat.reshape(out.shape)
        start = file.tensors[name].begin
        file.drop_pages(start + begin, start + end)

    def close(self) -> None:
        """Unmap the files; nothing can be read after."""
        self._pool.shutdown()
        for file in self._files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _read_index(model_dir: Path) -> dict[str, str]:
    """Tensor name to file name; empty without an index. A single file wins over an index."""
    if (model_dir / SINGLE_NAME).exists() or not (model_dir / INDEX_NAME).exists():
        return {}
    index = read_json_object(model_dir / INDEX_NAME).get("weight_map")
    if not isinstance(index, dict) or not index:
        raise ConfigError(f"{model_dir / INDEX_NAME}: weight_map is missing; fetch the file again")
    for name, shard in index.items():
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise ConfigError(
                f"{model_dir / INDEX_NAME}: {name} lies in {shard!r}; expected a file name"
            )
    return index


def _shard_paths(model_dir: Path, index: dict[str, str]) -> list[Path]:
    if index:
        paths = [model_dir / shard for shard in sorted(set(index.values()))]
        for path in paths:
            if not path.exists():
                raise ConfigError(
                    f"{path}: shard is missing, though {INDEX_NAME} names it; fetch the model again"
                )
        return paths
    if (model_dir / SINGLE_NAME).exists():
        return [model_dir / SINGLE_NAME]
    paths = sorted(model_dir.glob("*.safetensors"))
    if not paths:
        raise ConfigError(
            f"{model_dir} has no safetensors file; give a folder with {SINGLE_NAME} or "
            f"{INDEX_NAME} (other formats must be converted first)"
        )
    _check_numbered(paths)
    return paths


def _check_numbered(paths: list[Path]) -> None:
    """Without an index only the names model-00001-of-00003 tell that a shard is missing."""
    present = {path.name for path in paths}
    for path in paths:
        stem, _, total = path.stem.rpartition("-of-")
        prefix, _, number = stem.rpartition("-")
        if not (number.isdecimal() and total.isdecimal()):
            continue
        for i in range(1, int(total) + 1):
            name = f"{prefix}-{i:0{len(number)}d}-of-{total}.safetensors"
            if name not in present:
                raise ConfigError(
                    f"{path.parent / name}: shard is missing, though {path.name} is there; "
                    "fetch the model again"
                )
