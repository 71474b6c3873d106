"""What engines hold in memory: their parameters and their pages, seen as arrays."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from pegainfer_core.backend import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pegainfer_qwen3.engine import LoadedModel


def parameters(part: object) -> Iterator[Tensor]:
    """Every tensor in a structure of dataclasses and tuples."""
    if isinstance(part, Tensor):
        yield part
    elif isinstance(part, tuple):
        for item in part:
            yield from parameters(item)
    elif dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            yield from parameters(getattr(part, field.name))


def values(tensor: Tensor) -> NDArray[np.generic]:
    """A tensor of the NumPy backend as it is held."""
    assert isinstance(tensor.storage, np.ndarray)
    return tensor.storage


def digest(model: LoadedModel) -> str:
    """SHA-256 of every parameter."""
    found = hashlib.sha256()
    for tensor in parameters(model.weights):
        found.update(np.ascontiguousarray(values(tensor)).tobytes())
    return found.hexdigest()
