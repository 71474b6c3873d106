"""The CUDA backend: memory, streams and graphs by CuPy's binding of the runtime, kernels as cubins.

Loads the binding when the backend is first asked for; the arithmetic in here needs no GPU.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pegainfer_core.backend.cuda.cuda_backend import CudaBackend

__all__ = ["CudaBackend"]


def __getattr__(name: str) -> object:
    if name != "CudaBackend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pegainfer_core.backend.cuda.cuda_backend import CudaBackend

    return CudaBackend
