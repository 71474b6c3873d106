"""Names everything that shapes a KV page besides its tokens, so that models never share pages.

Reads a checkpoint's small files whole and its weights in samples. Knows no model family.

The weights are sampled, because hashing them would take seconds of every start. Of each tensor the
first, middle and last 4 KiB are read, and 4 KiB of every 4 MiB (wider apart in checkpoints beyond
64 GiB). Fine-tuning, merging, quantizing or pruning changes values all over a tensor and cannot
pass. What can: an edit by hand of fewer bytes than lie between two samples, such as one row of an
embedding. Whoever does that gives the changed model a KV folder of its own.
"""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pegainfer_core.weights import ConfigError
from pegainfer_core.weights.safetensors_file import SafetensorsFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pegainfer_core.backend import KvLayout, StateLayout
    from pegainfer_core.contract import LaunchContext

NUMERICS_VERSION: Final = 1
"""Raised whenever a backend computes other values for the same inputs than the release before."""

_STRIPE_BYTES: Final = 4096
_STRIDE_BYTES: Final = 4 << 20
_MAX_STRIDES: Final = 16384
_NUM_THREADS: Final = 8
_TOKENIZER_FILES: Final = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "merges.txt", "tokenizer.model"),
)


def model_identity(
    context: LaunchContext,
    layouts: Mapping[int, KvLayout | StateLayout],
    *,
    backend: str,
    dtype: str,
    numerics: str = "",
) -> str:
    """Hex SHA-256 of config, tokenizer, weights, page layout and numerics.

    Dummy weights are named by their config and seed. Reads about 13 MB of 8 GB of weights, in small
    pieces on several threads.

    Args:
        context: Of the launch.
        layouts: Of the pages or states, by KV group.
        backend: Name of the backend that computes.
        dtype: Type it computes with.
        numerics: Whatever else changes the values in a page, such as a version of the family's
            own kernels.

    Raises:
        ConfigError: A file of the checkpoint cannot be read.
    """
    model_dir = Path(context.model_dir)
    parts: list[tuple[str, bytes]] = [
        ("numerics", f"{NUMERICS_VERSION} {numerics}".encode()),
        ("family", context.family.encode()),
        ("backend", f"{backend} {dtype} tp{context.options.tp} ep{context.options.ep}".encode()),
    ]
    parts += [(f"layout {group}", repr(layouts[group]).encode()) for group in sorted(layouts)]
    try:
        parts.append(("config.json", (model_dir / "config.json").read_bytes()))
        parts += _tokenizer(model_dir)
        if context.options.load_format == "dummy":
            parts.append(("dummy", str(context.options.seed).encode()))
        else:
            parts += _weights(model_dir)
    except OSError as error:
        raise ConfigError(f"{error.filename}: cannot be read: {error.strerror}") from error
    return _digest(parts).hex()


def _digest(parts: Iterable[tuple[str, bytes]]) -> bytes:
    """Every part with its name and length, so that no two lists of parts run together."""
    digest = hashlib.sha256()
    for name, content in parts:
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.digest()


def _tokenizer(model_dir: Path) -> Iterator[tuple[str, bytes]]:
    paths = [model_dir / name for name in _TOKENIZER_FILES]
    for path in [*paths, *sorted(model_dir.glob("*.tiktoken"))]:
        if path.exists():
            yield path.name, path.read_bytes()


def _weights(model_dir: Path) -> list[tuple[str, bytes]]:
    paths = sorted(model_dir.glob("*.safetensors"))
    if not paths:
        raise ConfigError(f"{model_dir} has no safetensors file")
    total_bytes = sum(path.stat().st_size for path in paths)
    stride_bytes = max(_STRIDE_BYTES, total_bytes // _MAX_STRIDES)
    with ThreadPoolExecutor(_NUM_THREADS, "identity") as pool:
        return [(path.name, _shard(path, stride_bytes, pool)) for path in paths]


def _shard(path: Path, stride_bytes: int, pool: ThreadPoolExecutor) -> bytes:
    """Digest of a shard's size, header and samples."""
    file_bytes = path.stat().st_size
    offsets = _offsets(path, stride_bytes)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if hasattr(os, "posix_fadvise"):  # Read-ahead would read a multiple.
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        header_bytes = 8 + int.from_bytes(os.pread(fd, 8, 0), "little")
        chunks = _batches(offsets, 64)
        samples = pool.map(lambda chunk: _samples(fd, chunk), chunks)
        parts = [("size", str(file_bytes).encode()), ("header", os.pread(fd, header_bytes, 0))]
        return _digest([*parts, *(("samples", sample) for sample in samples)])
    finally:
        os.close(fd)


def _offsets(path: Path, stride_bytes: int) -> list[int]:
    """Where the samples of a shard begin, ascending."""
    file = SafetensorsFile(path)
    try:
        spans = [(tensor.begin, tensor.end) for tensor in file.tensors.values()]
    finally:
        file.close()
    offsets: set[int] = set()
    for begin, end in spans:
        last = max(end - _STRIPE_BYTES, begin)
        offsets.update((begin, (begin + last) // 2, last))
        offsets.update(range(begin, last, stride_bytes))
    return sorted(offsets)


def _batches(offsets: Sequence[int], size: int) -> list[Sequence[int]]:
    return [offsets[start : start + size] for start in range(0, len(offsets), size)]


def _samples(fd: int, offsets: Sequence[int]) -> bytes:
    return b"".join(os.pread(fd, _STRIPE_BYTES, offset) for offset in offsets)
