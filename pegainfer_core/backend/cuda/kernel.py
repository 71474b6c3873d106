"""One loaded kernel and its launch."""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING, Final

from pegainfer_core.backend.cuda.driver import (
    LaunchConfig,
    check,
    library,
    load_function,
    max_clusters,
    serialization_attribute,
)
from pegainfer_core.kernels import KernelError

if TYPE_CHECKING:
    from pegainfer_core.kernels import Cubin

_FORMATS: Final = {"i32": "i", "i64": "q", "u32": "I", "u64": "Q", "fp32": "f"}
_WARP_THREADS: Final = 32
_SCRATCH: Final = (0, 0)
"""Triton's kernels end with two pointers to scratch; ours want none, so both are null."""
_SCRATCH_FORMAT: Final = "QQ"


class Kernel:
    """A kernel of the current context.

    Arguments are packed into one buffer that the driver copies from: no object is made per launch.
    """

    def __init__(self, cubin: Cubin) -> None:
        entry = cubin.entry
        if entry.scratch_bytes:
            raise KernelError(f"{entry.spec.label} wants scratch memory, which is not supported")
        self.name = entry.symbol
        self._module, function = load_function(cubin.code, entry.symbol, entry.shared_bytes)
        self._function = ctypes.c_void_p(function)
        formats = "@" + "".join(_format(kind) for kind in entry.spec.arguments)
        if entry.spec.language == "triton":
            formats += _SCRATCH_FORMAT
        self._scratch = _SCRATCH if entry.spec.language == "triton" else ()
        self._pack = struct.Struct(formats).pack_into
        num_bytes = struct.calcsize(formats)
        self._arguments = ctypes.create_string_buffer(num_bytes)
        self._num_bytes = ctypes.c_size_t(num_bytes)
        # CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END
        self._extra = (ctypes.c_void_p * 5)(
            1, ctypes.addressof(self._arguments), 2, ctypes.addressof(self._num_bytes), 0
        )
        self._config = LaunchConfig(
            grid_x=1,
            grid_y=1,
            grid_z=1,
            block_x=entry.num_warps * _WARP_THREADS,
            block_y=1,
            block_z=1,
            shared_bytes=entry.shared_bytes,
        )
        if entry.spec.overlaps:
            self._attribute = serialization_attribute()
            self._config.attributes = ctypes.pointer(self._attribute)
            self._config.num_attributes = 1
        self._config_pointer = ctypes.byref(self._config)
        self._launch = library().cuLaunchKernelEx
        self._max_clusters: int | None = None

    def max_clusters(self, size: int) -> int:
        """Clusters that run at once, of a kernel compiled for clusters of `size` blocks.

        Raises:
            CudaError: The driver refuses.
        """
        if self._max_clusters is None:
            self._max_clusters = max_clusters(self._function, self._config, size)
        return self._max_clusters

    def launch(self, stream: int, grid: tuple[int, int], *arguments: float) -> None:
        """Launch on a stream.

        Args:
            stream: Its handle.
            grid: Blocks along x and y.
            arguments: Addresses and numbers, in the order of the spec.

        Raises:
            CudaError: The driver refuses.
        """
        self._pack(self._arguments, 0, *arguments, *self._scratch)
        config = self._config
        config.grid_x, config.grid_y = grid
        config.stream = stream
        status = self._launch(self._config_pointer, self._function, None, self._extra)
        if status:
            check(status, f"launching {self.name} with grid {grid}")


def _format(kind: str) -> str:
    return "Q" if kind.startswith("*") else _FORMATS[kind.partition(":")[0]]
