"""Matrix products by cuBLASLt, on one stream, recordable: own workspace, no hidden allocation."""

from __future__ import annotations

import ctypes
import logging
from typing import TYPE_CHECKING, Final

from pegainfer_core.backend.cuda import cublaslt
from pegainfer_core.backend.cuda.product_plan import (
    WORKSPACE_BYTES,
    Planner,
    ProductPlan,
    algorithm_of,
)
from pegainfer_core.backend.cuda.product_shape import ProductShape
from pegainfer_core.backend.cuda.product_trials import ProductTrials

if TYPE_CHECKING:
    from pegainfer_core.backend.cuda.device import Device
    from pegainfer_core.backend.cuda.tuned_products import TunedProducts

__all__ = ["ProductShape", "Products"]

logger = logging.getLogger(__name__)

_NUM_CANDIDATES: Final = 8


class Products:
    """Plans and runs products; a plan is made once a shape.

    Args:
        device: Whose stream they run on; this object belongs to its thread.
        tuned: Measured algorithms.
    """

    def __init__(self, device: Device, tuned: TunedProducts | None = None) -> None:
        self._device = device
        self._tuned = tuned
        self._matmul = cublaslt.library().cublasLtMatmul
        self._planner = Planner()
        self._workspace = device.allocate(WORKSPACE_BYTES)
        self._one, self._zero = ctypes.c_float(1), ctypes.c_float(0)
        self._one_at, self._zero_at = ctypes.addressof(self._one), ctypes.addressof(self._zero)
        self._plans: dict[ProductShape, ProductPlan] = {}

    def run(self, shape: ProductShape, x: int, weight: int, out: int) -> None:
        """Submit a product of matrices at these addresses, each aligned to 256 bytes.

        Raises:
            CudaError: cuBLASLt knows no way to compute it.
        """
        plan = self._plans.get(shape)
        if plan is None:
            plan = self._plans[shape] = self._plan(shape)
        status = self._submit(plan, shape.accumulate, x, weight, out)
        if status:
            cublaslt.check(status, f"the product {shape}")

    def tune(self, shapes: list[ProductShape]) -> None:
        """Measure the proposed algorithms of products that were never measured on such a device.

        Args:
            shapes: Of `TUNED_ROWS` rows each.

        Raises:
            ConfigError: The device has no memory left for operands.
        """
        missing = self._tuned.missing(shapes) if self._tuned else []
        if not missing or self._tuned is None:
            return
        trials = ProductTrials(self._device, missing, self._submit)
        found = {}
        for shape in missing:
            plans = self._planner.plans(shape, _NUM_CANDIDATES)
            found[shape] = algorithm_of(trials.fastest(shape, plans))
        self._tuned.store(found)
        logger.info("measured %d shapes of products", len(missing))

    def _plan(self, shape: ProductShape) -> ProductPlan:
        algorithm = self._tuned.get(shape) if self._tuned else None
        plan = self._planner.plan_with(shape, algorithm) if algorithm else None
        return plan or self._planner.plans(shape, 1)[0]

    def _submit(self, plan: ProductPlan, accumulate: bool, x: int, weight: int, out: int) -> int:
        status: int = self._matmul(
            self._planner.handle,
            plan.description,
            self._one_at,
            weight,
            plan.weight,
            x,
            plan.x,
            self._one_at if accumulate else self._zero_at,
            out,
            plan.out,
            out,
            plan.out,
            plan.algorithm,
            self._workspace.address,
            WORKSPACE_BYTES,
            self._device.stream,
        )
        return status
