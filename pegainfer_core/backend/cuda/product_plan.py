"""How cuBLASLt is told about a product: descriptions, layouts, and the algorithms it proposes."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final, NamedTuple

from pegainfer_core.backend.cuda import cublaslt
from pegainfer_core.backend.cuda.errors import CudaError
from pegainfer_core.backend.dtype import DType

if TYPE_CHECKING:
    from pegainfer_core.backend.cuda.product_shape import ProductShape

WORKSPACE_BYTES: Final = 32 << 20

_TYPES: Final = {
    DType.FLOAT32: cublaslt.TYPE_FLOAT32,
    DType.BFLOAT16: cublaslt.TYPE_BFLOAT16,
}
_TRANSPOSE: Final = 1
_ALGORITHM_BYTES: Final = 64
_RESULT_BYTES: Final = 96
"""Of a `cublasLtMatmulHeuristicResult_t`, which begins with the algorithm."""


class ProductPlan(NamedTuple):
    """Handles of a shape's description and layouts, and the algorithm it is computed with."""

    description: int
    weight: int
    x: int
    out: int
    algorithm: ctypes.Array[ctypes.c_char]


class Planner:
    """Makes plans; belongs to the thread of its handle.

    Attributes:
        handle: Of the library.
    """

    def __init__(self) -> None:
        self.handle = cublaslt.create("cublasLtCreate")
        self._preference = cublaslt.create("cublasLtMatmulPreferenceCreate")
        cublaslt.set_attribute(
            "cublasLtMatmulPreferenceSetAttribute",
            self._preference,
            cublaslt.PREFERENCE_WORKSPACE_BYTES,
            ctypes.c_size_t(WORKSPACE_BYTES),
        )
        # Partial sums in the type of the result would round more than once.
        cublaslt.set_attribute(
            "cublasLtMatmulPreferenceSetAttribute",
            self._preference,
            cublaslt.PREFERENCE_REDUCTION_SCHEMES,
            ctypes.c_uint32(cublaslt.REDUCTION_IN_PLACE | cublaslt.REDUCTION_IN_COMPUTE_TYPE),
        )

    def plans(self, shape: ProductShape, count: int) -> list[ProductPlan]:
        """Plans with the algorithms that the library proposes, the likely best first.

        Raises:
            CudaError: It proposes none.
        """
        description, weight, x, out = self._describe(shape)
        results = (ctypes.c_char * (_RESULT_BYTES * count))()
        found = ctypes.c_int(0)
        status = cublaslt.library().cublasLtMatmulAlgoGetHeuristic(
            self.handle, description, weight, x, out, out, self._preference, count, results,
            ctypes.byref(found),
        )  # fmt: skip
        cublaslt.check(status, f"planning {shape}")
        if not found.value:
            raise CudaError(f"cuBLASLt has no algorithm for {shape}")
        starts = range(0, _RESULT_BYTES * found.value, _RESULT_BYTES)
        algorithms = [results.raw[start : start + _ALGORITHM_BYTES] for start in starts]
        return [ProductPlan(description, weight, x, out, _held(code)) for code in algorithms]

    def plan_with(self, shape: ProductShape, algorithm: bytes) -> ProductPlan | None:
        """A plan with a given algorithm, None where it does not fit the shape."""
        plan = ProductPlan(*self._describe(shape), _held(algorithm))
        result = (ctypes.c_char * _RESULT_BYTES)()
        status = cublaslt.library().cublasLtMatmulAlgoCheck(
            self.handle, plan.description, plan.weight, plan.x, plan.out, plan.out,
            plan.algorithm, result,
        )  # fmt: skip
        workspace_bytes = int.from_bytes(
            result.raw[_ALGORITHM_BYTES : _ALGORITHM_BYTES + 8], "little"
        )
        return None if status or workspace_bytes > WORKSPACE_BYTES else plan

    def _describe(self, shape: ProductShape) -> tuple[int, int, int, int]:
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
        return description, weight, x, _layout(result, shape.n, shape.rows)


def algorithm_of(plan: ProductPlan) -> bytes:
    """What `Planner.plan_with` takes."""
    return plan.algorithm.raw[:_ALGORITHM_BYTES]


def _held(algorithm: bytes) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(algorithm, _ALGORITHM_BYTES)


def _layout(kind: int, num_rows: int, num_columns: int) -> int:
    """A dense matrix as cuBLASLt counts: column after column."""
    return cublaslt.create("cublasLtMatrixLayoutCreate", kind, num_rows, num_columns, num_rows)
