"""The few functions of cuBLASLt that products need, called directly.

A binding of the whole library loads others with it: nvmath-python's took 1.3 s and 280 MB.
Constants are those of `cublasLt.h`.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Final

from cuda.pathfinder import load_nvidia_dynamic_lib

from pegainfer_core.backend.cuda.errors import CudaError

COMPUTE_FLOAT32: Final = 68
"""`CUBLAS_COMPUTE_32F`: float32 operands are not narrowed to tf32."""

TYPE_FLOAT32: Final = 0
TYPE_BFLOAT16: Final = 14
DESCRIPTION_TRANSPOSE_A: Final = 3
PREFERENCE_WORKSPACE_BYTES: Final = 1
PREFERENCE_REDUCTION_SCHEMES: Final = 3
REDUCTION_IN_PLACE: Final = 1
REDUCTION_IN_COMPUTE_TYPE: Final = 2

_STATUS: Final = {
    1: "not initialised",
    3: "allocation failed",
    7: "invalid value",
    8: "not supported by this device",
    13: "execution failed",
    14: "internal error",
    15: "not supported",
}
_POINTER = ctypes.c_void_p
_SIZE = ctypes.c_size_t
_SIGNATURES: Final = {
    "cublasLtCreate": [_POINTER],
    "cublasLtMatmulDescCreate": [_POINTER, ctypes.c_int, ctypes.c_int],
    "cublasLtMatmulDescSetAttribute": [_POINTER, ctypes.c_int, _POINTER, _SIZE],
    "cublasLtMatrixLayoutCreate": [
        _POINTER,
        ctypes.c_int,
        ctypes.c_uint64,
        ctypes.c_uint64,
        ctypes.c_int64,
    ],
    "cublasLtMatmulPreferenceCreate": [_POINTER],
    "cublasLtMatmulPreferenceSetAttribute": [_POINTER, ctypes.c_int, _POINTER, _SIZE],
    "cublasLtMatmulAlgoGetHeuristic": [*[_POINTER] * 7, ctypes.c_int, _POINTER, _POINTER],
    "cublasLtMatmulAlgoCheck": [_POINTER] * 8,
    # handle, description, alpha, A, its layout, B, its layout, beta, C, its layout, D, its
    # layout, algorithm, workspace, its size, stream
    "cublasLtMatmul": [*[_POINTER] * 14, _SIZE, _POINTER],
}


@cache
def library() -> ctypes.CDLL:
    """cuBLASLt, of a wheel or of the system, with the signatures of the functions in use.

    Raises:
        CudaError: It is not installed.
    """
    try:
        path = load_nvidia_dynamic_lib("cublasLt").abs_path
    except Exception as error:
        raise CudaError(
            f"cuBLASLt is not installed ({error}); it comes with the package's extra for CUDA, "
            "such as pegainfer[cuda13]"
        ) from error
    loaded = ctypes.CDLL(path or "libcublasLt.so")
    for name, arguments in _SIGNATURES.items():
        getattr(loaded, name).argtypes = arguments
    return loaded


def check(status: int, what: str) -> None:
    """Turn a status into an exception.

    Raises:
        CudaError: The status is not success.
    """
    if status:
        raise CudaError(f"cuBLASLt: {what} failed: {_STATUS.get(status, 'unknown')} ({status})")


def create(function: str, *arguments: int) -> int:
    """Call one of the functions that make a handle.

    Raises:
        CudaError: It fails.
    """
    handle = ctypes.c_void_p()
    check(getattr(library(), function)(ctypes.byref(handle), *arguments), function)
    if handle.value is None:
        raise CudaError(f"cuBLASLt: {function} gave no handle")
    return handle.value


def set_attribute(function: str, handle: int, attribute: int, value: ctypes._SimpleCData) -> None:  # type: ignore[type-arg]
    """Set an attribute of a handle.

    Raises:
        CudaError: It fails.
    """
    status = getattr(library(), function)(
        handle, attribute, ctypes.byref(value), ctypes.sizeof(value)
    )
    check(status, function)


def version() -> int:
    """Version of the library, such as 130200."""
    function = library().cublasLtGetVersion
    function.restype = ctypes.c_size_t
    return int(function())
