"""Tensor maps: how the bulk copy engine finds boxes of a tensor; from sm_90 on.

Knows nothing of what the tensors are.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final, NamedTuple

from pegainfer_core.backend.cuda.driver import check, library

if TYPE_CHECKING:
    from pegainfer_core.backend.cuda.device import Device, DeviceMemory

_BFLOAT16: Final = 9
_BFLOAT16_BYTES: Final = 2
_SWIZZLE_128_BYTES: Final = 3
_PROMOTE_TO_128_BYTES: Final = 2
_MAP_BYTES: Final = 128
_MAP_ALIGNMENT: Final = 64


class TensorLayout(NamedTuple):
    """A tensor of bfloat16, innermost dimension first.

    Attributes:
        address: Of the first value.
        sizes: Values along each dimension.
        strides: Values from one index to the next, of each dimension but the innermost, whose
            values lie side by side.
        box: What one copy brings; 64 values along the innermost dimension, 128 bytes, which end up
            swizzled in shared memory. What lies outside of the tensor reads as zeros.
    """

    address: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]


class TensorMaps:
    """Maps on the device, made once for each layout.

    Args:
        device: Where tensors and maps lie.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._maps: dict[TensorLayout, DeviceMemory] = {}

    def address(self, layout: TensorLayout) -> int:
        """Where the map of a layout lies.

        Raises:
            CudaError: The layout cannot be mapped.
        """
        found = self._maps.get(layout)
        if found is None:
            found = self._maps[layout] = self._made(layout)
        return found.address

    def _made(self, layout: TensorLayout) -> DeviceMemory:
        buffer = ctypes.create_string_buffer(_MAP_BYTES + _MAP_ALIGNMENT)
        host = -(-ctypes.addressof(buffer) // _MAP_ALIGNMENT) * _MAP_ALIGNMENT
        rank = len(layout.sizes)
        strides = [_BFLOAT16_BYTES * stride for stride in layout.strides]
        status = library().cuTensorMapEncodeTiled(
            ctypes.c_void_p(host),
            _BFLOAT16,
            rank,
            ctypes.c_void_p(layout.address),
            (ctypes.c_uint64 * rank)(*layout.sizes),
            (ctypes.c_uint64 * (rank - 1))(*strides),
            (ctypes.c_uint32 * rank)(*layout.box),
            (ctypes.c_uint32 * rank)(*(1,) * rank),
            0,
            _SWIZZLE_128_BYTES,
            _PROMOTE_TO_128_BYTES,
            0,
        )
        check(status, f"mapping {layout}")
        memory = self._device.allocate(_MAP_BYTES)
        self._device.upload(memory.address, host, _MAP_BYTES)
        self._device.synchronize()
        return memory
