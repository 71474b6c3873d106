"""Seeded stand-ins for a checkpoint: right shapes, lively values, no download.

The spreads keep activations and logits in the range of a trained model's, so that timing, sampling
and routing behave; the text is noise. Knows roles of tensors, no family.
"""

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np

from pegainfer_core.weights.config import FloatType
from pegainfer_core.weights.float_convert import FloatArray, round_floats
from pegainfer_core.weights.loader import Progress
from pegainfer_core.weights.seeded import (
    BLOCK_VALUES,
    fill_block,
    normal_table,
    num_blocks,
    stream_key,
    uniform_table,
)
from pegainfer_core.weights.source import TensorSource
from pegainfer_core.weights.spec import TensorSpec, TensorSpecs
from pegainfer_core.weights.writer import write_safetensors

__all__ = ["DummyCheckpoint", "write_dummy"]

#: Norm weights are spread evenly over 1 +- this.
_NORM_SPREAD: Final = 0.2
#: Deviation of a router's logits for inputs of unit size: wide enough to choose, not one-sided.
_ROUTER_LOGIT_STD: Final = 1.5
_BIAS_STD: Final = 0.1


class DummyCheckpoint(TensorSource):
    """Seeded values in place of a checkpoint's.

    A tensor depends on `seed`, its name, its shape and its spec only: not on the others, on the
    order of reading, or on the number of threads. Embedding and head are N(0, 4/sqrt(H)), matrices
    N(0, 1/sqrt(fan_in)), norm weights uniform in 1 +- 0.2, router weights N(0, 1.5/sqrt(fan_in)).

    Args:
        specs: The tensors.
        seed: Any integer.
        dtype: The type of tensors whose spec names none; values are rounded to it.
        num_threads: Threads that draw.
    """

    def __init__(
        self, specs: TensorSpecs, *, seed: int, dtype: FloatType, num_threads: int = 2
    ) -> None:
        self._specs = specs
        self._seed = seed
        self._dtype: FloatType = dtype
        self._pool = ThreadPoolExecutor(num_threads, "dummy-weights")

    def names(self) -> tuple[str, ...]:
        """All tensors, in the order of the specs."""
        return tuple(self._specs)

    def __contains__(self, name: str) -> bool:
        return name in self._specs

    def where(self, name: str) -> str:
        """Says that the values are made up."""
        return f"dummy weights of seed {self._seed}"

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape."""
        return self._specs[name].shape

    def dtype(self, name: str) -> FloatType:
        """What a tensor's values are rounded to."""
        return self._specs[name].dtype or self._dtype

    def quantiles(self, name: str) -> tuple[FloatArray, int]:
        """What a device needs to make the same values: the table, and the key of the stream."""
        return _table(self._specs[name], self.dtype(name)), stream_key(self._seed, name)

    def _read_into(self, name: str, out: FloatArray, round_to: FloatType) -> None:
        stored = self.dtype(name)
        table = _table(self._specs[name], stored)
        flat = out.reshape(-1) if out.flags.c_contiguous else np.empty(out.size, np.float32)

        def draw(block: int) -> None:
            part = flat[block * BLOCK_VALUES : (block + 1) * BLOCK_VALUES]
            fill_block(part, table, self._seed, name, block)
            if round_to != stored:
                round_floats(part, round_to)

        if out.size <= BLOCK_VALUES:
            draw(0)
        else:
            list(self._pool.map(draw, range(num_blocks(out.size))))
        if not out.flags.c_contiguous:
            out[...] = flat.reshape(out.shape)

    def close(self) -> None:
        """End the threads; nothing can be read after."""
        self._pool.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _table(spec: TensorSpec, dtype: FloatType) -> FloatArray:
    fan_in = spec.shape[-1] if spec.shape else 1
    match spec.kind:
        case "embedding" | "head":
            return normal_table(0.0, 4.0 / math.sqrt(fan_in), dtype)
        case "matrix":
            return normal_table(0.0, 1.0 / math.sqrt(fan_in), dtype)
        case "router":
            return normal_table(0.0, _ROUTER_LOGIT_STD / math.sqrt(fan_in), dtype)
        case "norm":
            return uniform_table(1.0 - _NORM_SPREAD, 1.0 + _NORM_SPREAD, dtype)
        case "zero_norm":
            return uniform_table(-_NORM_SPREAD, _NORM_SPREAD, dtype)
        case "bias":
            return normal_table(0.0, _BIAS_STD, dtype)


def write_dummy(
    model_dir: Path,
    specs: TensorSpecs,
    *,
    seed: int,
    dtype: FloatType,
    num_shards: int | None = None,
    progress: Progress | None = None,
) -> tuple[Path, ...]:
    """Write the tensors of a `DummyCheckpoint` as safetensors into a checkpoint folder.

    Args:
        model_dir: The folder with the config the specs were made from.
        specs: The tensors, by the names of the checkpoint.
        seed: Any integer.
        dtype: The type of tensors whose spec names none.
        num_shards: Files to write (default: by size).
        progress: Told of every tensor written.

    Returns:
        The weight files.

    Raises:
        ConfigError: The folder already holds weights.
    """
    with DummyCheckpoint(specs, seed=seed, dtype=dtype) as dummy:
        return write_safetensors(model_dir, dummy, num_shards=num_shards, progress=progress)
