"""Where tensors come from: what a reader of weights may ask, whatever holds them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pegainfer_core.weights.config import FLOAT_TYPES, FloatType, checkpoint_dtype
from pegainfer_core.weights.errors import ConfigError
from pegainfer_core.weights.float_convert import BYTES_PER_VALUE, FloatArray, round_floats

__all__ = ["ArraySource", "StoredBytes", "TensorSource", "compute_dtype"]


class StoredBytes(NamedTuple):
    """Where a tensor's bytes lie, little endian: [begin, end) of a file."""

    path: Path
    begin: int
    end: int


class TensorSource(ABC):
    """Named tensors that can be read as float32: a checkpoint, seeded values, arrays in memory."""

    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """All tensors."""

    @abstractmethod
    def __contains__(self, name: str) -> bool: ...

    @abstractmethod
    def where(self, name: str) -> str:
        """What to call the place of a tensor in a message: its file, or the folder if missing."""

    @abstractmethod
    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape."""

    @abstractmethod
    def dtype(self, name: str) -> str:
        """How a tensor is stored, such as `bfloat16`, `float32`, `float8_e4m3` or `int32`."""

    @abstractmethod
    def _read_into(self, name: str, out: FloatArray, round_to: FloatType) -> None:
        """Fill `out`, which has the tensor's shape and any strides."""

    def stored_bytes(self, name: str) -> StoredBytes | None:
        """Where a reader that wants no conversion finds a tensor; None when it is in no file."""
        return None

    def expect(self, name: str, shape: tuple[int, ...]) -> None:
        """Check that a tensor is there, has this shape and holds plain numbers.

        Raises:
            ConfigError: It is not so; the message names tensor, file and both shapes.
        """
        where = self.where(name)
        if name not in self:
            raise ConfigError(f"{where}: tensor {name} is missing; it should have shape {shape}")
        if self.shape(name) != shape:
            raise ConfigError(
                f"{where}: tensor {name} has shape {self.shape(name)}, but the config makes it "
                f"{shape}; config.json and weights do not belong together"
            )
        if self.dtype(name) not in BYTES_PER_VALUE:
            raise ConfigError(
                f"{where}: tensor {name} is stored as {self.dtype(name)}, which cannot be read as "
                "plain numbers; supported are bfloat16, float16 and float32"
            )

    def read_f32(
        self, name: str, out: FloatArray | None = None, *, round_to: FloatType = "float32"
    ) -> FloatArray:
        """Read a tensor as float32.

        Args:
            name: One of `names()`.
            out: Where to write, of the tensor's shape; may be a view into a larger array. A new
                array when None.
            round_to: Round to values that this type holds.

        Returns:
            `out`, or the new array.

        Raises:
            ConfigError: There is no such tensor, its shape is another, or it does not hold plain
                floating-point numbers.
        """
        if out is None:
            shape = self.shape(name) if name in self else ()
            self.expect(name, shape)
            out = np.empty(shape, np.float32)
        else:
            self.expect(name, out.shape)
        self._read_into(name, out, round_to)
        return out


class ArraySource(TensorSource):
    """Arrays in memory, as if they were stored as `dtype`."""

    def __init__(self, arrays: Mapping[str, FloatArray], dtype: FloatType = "float32") -> None:
        self._arrays = arrays
        self._dtype: FloatType = dtype

    def names(self) -> tuple[str, ...]:
        """All tensors."""
        return tuple(self._arrays)

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def where(self, name: str) -> str:
        """Always memory."""
        return "memory"

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape."""
        return self._arrays[name].shape

    def dtype(self, name: str) -> FloatType:
        """The type given for all tensors."""
        return self._dtype

    def _read_into(self, name: str, out: FloatArray, round_to: FloatType) -> None:
        values = np.array(self._arrays[name], np.float32, order="C")
        round_floats(values, self._dtype)
        round_floats(values, round_to)
        out[...] = values


def compute_dtype(config: Mapping[str, object], source: TensorSource) -> FloatType:
    """The type a model computes in: what its config says, else what most of its values are in.

    Raises:
        ConfigError: The config says nothing usable, and neither do the tensors.
    """
    stated = checkpoint_dtype(config)
    if stated is not None:
        return stated
    values: dict[str, int] = {}
    for name in source.names():
        size = int(np.prod(source.shape(name), dtype=np.int64))
        values[source.dtype(name)] = values.get(source.dtype(name), 0) + size
    most = max(values, key=lambda dtype: values[dtype], default="nothing")
    for dtype in FLOAT_TYPES:
        if dtype == most:
            return dtype
    raise ConfigError(
        f"config.json names no dtype and the tensors are mostly {most}; "
        "supported are bfloat16, float16 and float32"
    )
