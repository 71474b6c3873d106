"""One safetensors file: its header, checked against the file, and its tensors' bytes.

Own reader, because the format's NumPy package knows neither bfloat16 nor how to convert into an
array that is already there. Knows no number format beyond its width, and no other file.
"""

import json
import math
import mmap
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pegainfer_core.weights.errors import ConfigError
from pegainfer_core.weights.plain_file import open_plain

__all__ = ["SafetensorsFile", "StoredTensor"]

#: Name and width in bits of every type code of the format.
_TYPES: Final = {
    "BOOL": ("bool", 8),
    "U8": ("uint8", 8),
    "I8": ("int8", 8),
    "U16": ("uint16", 16),
    "I16": ("int16", 16),
    "U32": ("uint32", 32),
    "I32": ("int32", 32),
    "U64": ("uint64", 64),
    "I64": ("int64", 64),
    "F4": ("float4_e2m1", 4),
    "F6_E2M3": ("float6_e2m3", 6),
    "F6_E3M2": ("float6_e3m2", 6),
    "F8_E4M3": ("float8_e4m3", 8),
    "F8_E5M2": ("float8_e5m2", 8),
    "F8_E8M0": ("float8_e8m0", 8),
    "F16": ("float16", 16),
    "BF16": ("bfloat16", 16),
    "F32": ("float32", 32),
    "F64": ("float64", 64),
    "C64": ("complex64", 64),
}
#: The limit of the format's reference reader.
_MAX_HEADER_BYTES: Final = 100_000_000
_LFS_POINTER: Final = b"version https://git-lfs"


class StoredTensor(NamedTuple):
    """Where a tensor lies; `begin` and `end` are byte offsets from the start of the file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class SafetensorsFile:
    """A memory-mapped safetensors file.

    Attributes:
        path: The file.
        tensors: What it holds, by name, in the order of the bytes.

    Raises:
        ConfigError: The file is missing, truncated, or its header contradicts itself or the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open_plain(path) as file:
                self.tensors = _read_header(file, path)
                self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error

    def raw(self, name: str) -> npt.NDArray[np.uint8]:
        """A tensor's bytes, 1-D and read-only, backed by the file; not to be kept."""
        tensor = self.tensors[name]
        return np.frombuffer(self._mapped, np.uint8, tensor.end - tensor.begin, tensor.begin)

    def drop_pages(self, begin: int, end: int) -> None:
        """Give back the mapped memory of a byte range of the file; it can be read again."""
        begin -= begin % mmap.PAGESIZE
        if end > begin:
            self._mapped.madvise(mmap.MADV_DONTNEED, begin, end - begin)

    def close(self) -> None:
        """Unmap the file."""
        self._mapped.close()


def _read_header(file: BinaryIO, path: Path) -> dict[str, StoredTensor]:
    file_bytes = path.stat().st_size
    start = file.read(len(_LFS_POINTER))
    if start == _LFS_POINTER:
        raise ConfigError(f"{path}: is a Git LFS pointer, not the weights; run git lfs pull")
    if len(start) < 8:
        raise ConfigError(f"{path}: has {file_bytes} bytes; truncated, fetch the file again")
    header_bytes = int.from_bytes(start[:8], "little")
    if header_bytes > _MAX_HEADER_BYTES:
        raise ConfigError(
            f"{path}: header of {header_bytes} bytes is longer than the format's "
            f"{_MAX_HEADER_BYTES}; not a safetensors file"
        )
    if 8 + header_bytes > file_bytes:
        raise ConfigError(
            f"{path}: header of {header_bytes} bytes, but the file has {file_bytes}; "
            "truncated, fetch the file again"
        )
    file.seek(8)
    header = _parse(path, file.read(header_bytes))
    header.pop("__metadata__", None)
    tensors = [
        (name, _tensor(path, name, entry, 8 + header_bytes)) for name, entry in header.items()
    ]
    tensors.sort(key=lambda item: (item[1].begin, item[1].end))
    _check_layout(path, tensors, 8 + header_bytes, file_bytes)
    return dict(tensors)


def _parse(path: Path, raw: bytes) -> dict[str, object]:
    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise ConfigError(f"{path}: header names {twice} twice")
        return found

    try:
        header: object = json.loads(raw, object_pairs_hook=unique)
    except ConfigError:
        raise
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: header is not valid JSON: {error}") from error
    if not isinstance(header, dict):
        raise ConfigError(f"{path}: header is a JSON {type(header).__name__}, not an object")
    return header


def _tensor(path: Path, name: str, entry: object, data_start: int) -> StoredTensor:
    fields = entry if isinstance(entry, dict) else {}
    code = fields.get("dtype")
    shape, span = _sizes(fields.get("shape")), _sizes(fields.get("data_offsets"))
    if not isinstance(code, str) or shape is None or span is None or len(span) != 2:
        raise ConfigError(f"{path}: header entry of {name} is malformed: {str(entry)[:200]}")
    if code not in _TYPES:
        raise ConfigError(f"{path}: {name} has the unknown type {code!r}")
    dtype, bits = _TYPES[code]
    begin, end = span
    if end - begin != math.ceil(math.prod(shape) * bits / 8):
        raise ConfigError(
            f"{path}: {name} has shape {shape} of {dtype}, but {end - begin} bytes "
            f"({begin} to {end}); the header is damaged"
        )
    return StoredTensor(dtype, tuple(shape), data_start + begin, data_start + end)


def _sizes(value: object) -> list[int] | None:
    if not isinstance(value, list):
        return None
    if any(isinstance(item, bool) or not isinstance(item, int) or item < 0 for item in value):
        return None
    return value


def _check_layout(
    path: Path, tensors: list[tuple[str, StoredTensor]], data_start: int, file_bytes: int
) -> None:
    position, previous = data_start, "the header"
    for name, tensor in tensors:
        if tensor.end > file_bytes:
            raise ConfigError(
                f"{path}: {name} ends at byte {tensor.end}, but the file has {file_bytes}; "
                "truncated, fetch the file again"
            )
        if tensor.begin != position:
            fault = "overlaps" if tensor.begin < position else "leaves a hole after"
            raise ConfigError(f"{path}: {name} {fault} {previous}; the header is damaged")
        position, previous = tensor.end, name
    if position != file_bytes:
        raise ConfigError(
            f"{path}: the file has {file_bytes} bytes, its header describes {position}; "
            "fetch the file again"
        )
