"""Reads a family's parameters and sees to it that a checkpoint and its config fit exactly.

A tensor that is missing, too many or misshaped is found before the first byte is converted. Knows
no family: the specs say what there must be.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from pegainfer_core.weights.config import FloatType
from pegainfer_core.weights.errors import ConfigError
from pegainfer_core.weights.float_convert import BYTES_PER_VALUE, FloatArray
from pegainfer_core.weights.source import TensorSource
from pegainfer_core.weights.spec import TensorSpecs

__all__ = ["ParameterLoader", "Progress"]

Progress = Callable[[int, int], None]
"""Called with the values read so far and the values in all, after each tensor."""

#: How many tensor names a message lists before it only counts them.
_NAMED: Final = 4


class ParameterLoader:
    """Reads the tensors that `specs` names, each once.

    Args:
        source: The checkpoint, or what stands in for one.
        specs: Every tensor of the model, by the family's own name.
        dtype: The type the model computes in; values are rounded to it.
        rename: From a checkpoint's name to the family's, for the spellings that releases use.
        ignore: Regular expressions, matched from the start of the family's name, of tensors that
            may be there and are not wanted.
        progress: Told of every tensor read.

    Raises:
        ConfigError: A tensor is missing, is not expected, has another shape, or does not hold
            plain numbers.
    """

    def __init__(
        self,
        source: TensorSource,
        specs: TensorSpecs,
        *,
        dtype: FloatType,
        rename: Callable[[str], str] = str,
        ignore: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> None:
        self._source = source
        self._specs = specs
        self._dtype: FloatType = dtype
        self._progress = progress
        self._stored_name: dict[str, str] = {}
        for stored in source.names():
            name = rename(stored)
            if name in self._stored_name and name in specs:
                raise ConfigError(
                    f"{source.where(stored)}: tensors {stored} and {self._stored_name[name]} are "
                    f"both read as {name}"
                )
            self._stored_name[name] = stored
        self._check(ignore)
        self._unread = dict.fromkeys(specs)
        self._num_read = 0
        self._num_values = sum(_size(spec.shape) for spec in specs.values())

    @property
    def dtype(self) -> FloatType:
        """Type of the tensors whose spec names none."""
        return self._dtype

    @property
    def num_values(self) -> int:
        """Values of all tensors together."""
        return self._num_values

    def _check(self, ignore: Sequence[str]) -> None:
        missing = [name for name in self._specs if name not in self._stored_name]
        if missing:
            raise ConfigError(
                f"{self._source.where(missing[0])}: {_listed(missing)} missing; {self._advice()}"
            )
        ignored = re.compile("|".join(f"(?:{pattern})" for pattern in ignore) or r"(?!)")
        unexpected = [
            stored
            for name, stored in self._stored_name.items()
            if name not in self._specs and not ignored.match(name)
        ]
        if unexpected:
            raise ConfigError(
                f"{self._source.where(unexpected[0])}: {_listed(unexpected)} not part of the model "
                "that config.json describes; leaving them out would give wrong answers"
            )
        for name, spec in self._specs.items():
            self._source.expect(self._stored_name[name], spec.shape)

    def _advice(self) -> str:
        """Why a tensor may be missing. Packed weights go by other names than plain ones."""
        for stored in self._stored_name.values():
            dtype = self._source.dtype(stored)
            if dtype not in BYTES_PER_VALUE:
                return (
                    f"{stored} is stored as {dtype}, so the checkpoint seems to be quantized in a "
                    "way that is not supported here"
                )
        return (
            "config.json and weights do not belong together, or the model was not fetched "
            "completely"
        )

    def read(self, name: str, out: FloatArray | None = None) -> FloatArray:
        """Read one tensor, rounded to its type.

        Args:
            name: The family's name.
            out: Where to write; a new array when None.

        Returns:
            `out`, or the new array, float32.
        """
        spec = self._specs[name]
        out = self._source.read_f32(
            self._stored_name[name], out, round_to=spec.dtype or self._dtype
        )
        self._count(name, out.size)
        return out

    def _count(self, name: str, num_values: int) -> None:
        self._unread.pop(name, None)
        self._num_read += num_values
        if self._progress is not None:
            self._progress(self._num_read, self._num_values)

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape."""
        return self._specs[name].shape

    def locate(self, name: str) -> tuple[TensorSource, str]:
        """Source and name there of a tensor, for a reader that fetches it itself."""
        return self._source, self._stored_name[name]

    def count(self, name: str) -> None:
        """Count a tensor that was fetched through `locate` as read."""
        self._count(name, _size(self._specs[name].shape))

    def read_stacked(self, names: Iterable[str]) -> FloatArray:
        """Read tensors into one array, one below the other along the first axis.

        For products that share an input, such as Q, K and V: no tensor is held twice.
        """
        names = list(names)
        shapes = [self._specs[name].shape for name in names]
        fused = np.empty((sum(shape[0] for shape in shapes), *shapes[0][1:]), np.float32)
        start = 0
        for name, shape in zip(names, shapes, strict=True):
            self.read(name, fused[start : start + shape[0]])
            start += shape[0]
        return fused

    def finish(self) -> None:
        """Check that every tensor of the specs was read.

        Raises:
            RuntimeError: One was not: the family forgot it.
        """
        if self._unread:
            raise RuntimeError(f"never read: {_listed(list(self._unread))} left out by the family")


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    rest = len(names) - _NAMED
    if rest > 0:
        return f"tensors {shown} and {rest} more are"
    return f"tensor {shown} is" if len(names) == 1 else f"tensors {shown} are"
