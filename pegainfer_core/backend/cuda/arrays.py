"""How tensors are held on a device: densely, bfloat16 as two bytes a value."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import numpy as np

from pegainfer_core.backend.dtype import DType
from pegainfer_core.backend.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.backend.cuda.device import Device, DeviceMemory
    from pegainfer_core.kernels.catalog import ElementType


def empty_tensor(device: Device, shape: tuple[int, ...], dtype: DType) -> Tensor:
    """An uninitialised tensor."""
    return Tensor(shape, dtype, device.allocate(math.prod(shape) * dtype.itemsize))


def memory(tensor: Tensor) -> DeviceMemory:
    """What holds a tensor."""
    return cast("DeviceMemory", tensor.storage)


def address(tensor: Tensor) -> int:
    """Where a tensor lies."""
    return cast("DeviceMemory", tensor.storage).address


def element(dtype: DType) -> ElementType:
    """A type as kernels spell it.

    Raises:
        ValueError: Nothing is computed in this type.
    """
    if dtype is DType.BFLOAT16:
        return "bf16"
    if dtype is DType.FLOAT32:
        return "fp32"
    raise ValueError(f"tensors of {dtype.value} are not computed on CUDA")


def dense(values: NDArray[np.float32], dtype: DType) -> NDArray[np.generic]:
    """Values as the device holds them; each must be one that `dtype` can represent."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if dtype is DType.FLOAT32:
        return flat
    return np.ascontiguousarray(flat.view("<u2")[1::2])


def widened(raw: NDArray[np.uint8], dtype: DType) -> NDArray[np.float32]:
    """Values of a dense copy, as float32: a view where that is possible."""
    if dtype is DType.FLOAT32:
        return raw.view(np.float32)
    wide = raw.view("<u2").astype(np.uint32)
    wide <<= np.uint32(16)
    return wide.view(np.float32)
