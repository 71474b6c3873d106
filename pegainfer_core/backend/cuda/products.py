"""Matrix products by cuBLASLt, on one stream, recordable: own workspace, no hidden allocation."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final, NamedTuple

from nvmath.bindings import cublasLt

from pegainfer_core.backend.cuda.errors import CudaError
from pegainfer_core.backend.dtype import DType

if TYPE_CHECKING:
    from pegainfer_core.backend.cuda.device import Device

_WORKSPACE_BYTES: Final = 32 << 20
_TYPES: Final = {DType.FLOAT32: 0, DType.BFLOAT16: 14}
"""`cudaDataType`."""

_COMPUTE_FLOAT32: Final = 68
"""`CUBLAS_COMPUTE_32F`: float32 operands are not narrowed to tf32."""

_TRANSPOSE: Final = 1
_RESULT_BYTES: Final = 128
"""Room for a `cublasLtMatmulHeuristicResult_t`, whose first 64 bytes are the algorithm."""


class ProductShape(NamedTuple):
    """`out` [rows, n] = `x` [rows, k] @ `weight`^T [n, k], plus `out` where it accumulates."""

    rows: int
    n: int
    k: int
    operands: DType
    result: DType
    accumulate: bool


class _Plan(NamedTuple):
    description: int
    weight: int
    x: int
    out: int
    algorithm: ctypes.Array[ctypes.c_char]


class Products:
    """Plans and runs products; a plan is made once a shape.

    Args:
        device: Whose stream they run on; this object belongs to its thread.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._handle = int(cublasLt.create())
        self._workspace = device.allocate(_WORKSPACE_BYTES)
        self._preference = int(cublasLt.matmul_preference_create())
        limit = ctypes.c_size_t(_WORKSPACE_BYTES)
        cublasLt.matmul_preference_set_attribute(
            self._preference,
            cublasLt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES,
            ctypes.addressof(limit),
            ctypes.sizeof(limit),
        )
        self._one, self._zero = ctypes.c_float(1), ctypes.c_float(0)
        self._plans: dict[ProductShape, _Plan] = {}

    def run(self, shape: ProductShape, x: int, weight: int, out: int) -> None:
        """Submit a product of matrices at these addresses, each aligned to 256 bytes.

        Raises:
            CudaError: cuBLASLt knows no way to compute it.
        """
        plan = self._plans.get(shape)
        if plan is None:
            plan = self._plans[shape] = self._plan(shape)
        beta = self._one if shape.accumulate else self._zero
        cublasLt.matmul(
            self._handle,
            plan.description,
            ctypes.addressof(self._one),
            weight,
            plan.weight,
            x,
            plan.x,
            ctypes.addressof(beta),
            out,
            plan.out,
            out,
            plan.out,
            ctypes.addressof(plan.algorithm),
            self._workspace.address,
            _WORKSPACE_BYTES,
            self._device.stream,
        )

    def _plan(self, shape: ProductShape) -> _Plan:
        # cuBLASLt counts by columns: a row-major [r, c] is its [c, r], so it computes
        # out^T [n, rows] = weight [n, k] @ x^T [k, rows], with `weight` seen as [k, n]^T.
        operand, result = _TYPES[shape.operands], _TYPES[shape.result]
        description = int(cublasLt.matmul_desc_create(_COMPUTE_FLOAT32, _TYPES[DType.FLOAT32]))
        transpose = ctypes.c_int32(_TRANSPOSE)
        cublasLt.matmul_desc_set_attribute(
            description,
            cublasLt.MatmulDescAttribute.TRANSA,
            ctypes.addressof(transpose),
            ctypes.sizeof(transpose),
        )
        weight = int(cublasLt.matrix_layout_create(operand, shape.k, shape.n, shape.k))
        x = int(cublasLt.matrix_layout_create(operand, shape.k, shape.rows, shape.k))
        out = int(cublasLt.matrix_layout_create(result, shape.n, shape.rows, shape.n))
        algorithm = ctypes.create_string_buffer(_RESULT_BYTES)
        found = ctypes.c_int(0)
        cublasLt.matmul_algo_get_heuristic(
            self._handle,
            description,
            weight,
            x,
            out,
            out,
            self._preference,
            1,
            ctypes.addressof(algorithm),
            ctypes.addressof(found),
        )
        if not found.value:
            raise CudaError(f"cuBLASLt has no algorithm for {shape}")
        return _Plan(description, weight, x, out, algorithm)
