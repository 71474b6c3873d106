"""Matrix products by cuBLASLt, on one stream, recordable: own workspace, no hidden allocation."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final, NamedTuple

from pegainfer_core.backend.cuda import cublaslt
from pegainfer_core.backend.cuda.errors import CudaError
from pegainfer_core.backend.dtype import DType

if TYPE_CHECKING:
    from pegainfer_core.backend.cuda.device import Device

_WORKSPACE_BYTES: Final = 32 << 20
_TYPES: Final = {
    DType.FLOAT32: cublaslt.TYPE_FLOAT32,
    DType.BFLOAT16: cublaslt.TYPE_BFLOAT16,
}
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
        self._matmul = cublaslt.library().cublasLtMatmul
        self._handle = cublaslt.create("cublasLtCreate")
        self._workspace = device.allocate(_WORKSPACE_BYTES)
        self._preference = cublaslt.create("cublasLtMatmulPreferenceCreate")
        cublaslt.set_attribute(
            "cublasLtMatmulPreferenceSetAttribute",
            self._preference,
            cublaslt.PREFERENCE_WORKSPACE_BYTES,
            ctypes.c_size_t(_WORKSPACE_BYTES),
        )
        self._one, self._zero = ctypes.c_float(1), ctypes.c_float(0)
        self._one_at, self._zero_at = ctypes.addressof(self._one), ctypes.addressof(self._zero)
        self._plans: dict[ProductShape, _Plan] = {}

    def run(self, shape: ProductShape, x: int, weight: int, out: int) -> None:
        """Submit a product of matrices at these addresses, each aligned to 256 bytes.

        Raises:
            CudaError: cuBLASLt knows no way to compute it.
        """
        plan = self._plans.get(shape)
        if plan is None:
            plan = self._plans[shape] = self._plan(shape)
        status = self._matmul(
            self._handle,
            plan.description,
            self._one_at,
            weight,
            plan.weight,
            x,
            plan.x,
            self._one_at if shape.accumulate else self._zero_at,
            out,
            plan.out,
            out,
            plan.out,
            plan.algorithm,
            self._workspace.address,
            _WORKSPACE_BYTES,
            self._device.stream,
        )
        if status:
            cublaslt.check(status, f"the product {shape}")

    def _plan(self, shape: ProductShape) -> _Plan:
        # cuBLASLt counts by columns: a row-major [r, c] is its [c, r], so it computes
        # out^T [n, rows] = weight [n, k] @ x^T [k, rows], with `weight` seen as [k, n]^T.
        operand, result = _TYPES[shape.operands], _TYPES[shape.result]
        description = cublaslt.create(
            "cublasLtMatmulDescCreate", cublaslt.COMPUTE_FLOAT32, cublaslt.TYPE_FLOAT32
        )
        cublaslt.set_attribute(
            "cublasLtMatmulDescSetAttribute",
            description,
            cublaslt.DESCRIPTION_TRANSPOSE_A,
            ctypes.c_int32(_TRANSPOSE),
        )
        weight = _layout(operand, shape.k, shape.n)
        x = _layout(operand, shape.k, shape.rows)
        out = _layout(result, shape.n, shape.rows)
        algorithm = ctypes.create_string_buffer(_RESULT_BYTES)
        found = ctypes.c_int(0)
        status = cublaslt.library().cublasLtMatmulAlgoGetHeuristic(
            self._handle,
            description,
            weight,
            x,
            out,
            out,
            self._preference,
            1,
            algorithm,
            ctypes.byref(found),
        )
        cublaslt.check(status, f"planning {shape}")
        if not found.value:
            raise CudaError(f"cuBLASLt has no algorithm for {shape}")
        return _Plan(description, weight, x, out, algorithm)


def _layout(kind: int, num_rows: int, num_columns: int) -> int:
    """A dense matrix as cuBLASLt counts: column after column."""
    return cublaslt.create("cublasLtMatrixLayoutCreate", kind, num_rows, num_columns, num_rows)
