"""Times ways to compute a product as a step runs it: recorded, and with weights that are cold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pegainfer_core.backend.cuda.device import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.backend.cuda.device import Device
    from pegainfer_core.backend.cuda.product_plan import ProductPlan
    from pegainfer_core.backend.cuda.product_shape import ProductShape

    Submit = Callable[[ProductPlan, bool, int, int, int], int]
    """Plan, whether it accumulates, and addresses of x, weight and out; answers a status."""

_MANY, _FEW, _FEW_FROM_ROWS = 12, 3, 512
"""Products in one recording, so that starting it does not count; few where each takes long."""

_WEIGHT_BYTES: Final = 512 << 20
"""Many times the L2 cache, through which the weights of a recording rotate."""

_ONE_BYTES: Final = 0x3F
"""Repeated, a bfloat16 of about 0.75."""


class ProductTrials:
    """Operands for trials of some shapes.

    Args:
        device: Where they lie.
        shapes: Those that will be tried.
        submit: Submits a product.

    Raises:
        ConfigError: The device has no memory left for operands.
    """

    def __init__(self, device: Device, shapes: list[ProductShape], submit: Submit) -> None:
        self._device = device
        self._submit = submit
        sizes = (
            max(s.rows * s.k * s.operands.itemsize for s in shapes),
            max(_WEIGHT_BYTES, *(_weight_bytes(s) for s in shapes)),
            max(s.rows * s.n * s.result.itemsize for s in shapes),
        )
        self._x, self._weights, self._out = (device.allocate(size) for size in sizes)
        for memory in (self._x, self._weights, self._out):
            device.fill(memory.address, _ONE_BYTES, memory.num_bytes)

    def fastest(self, shape: ProductShape, plans: list[ProductPlan]) -> ProductPlan:
        """The plan whose products take the least time."""
        times = [self._time_ms(shape, plan) for plan in plans]
        return plans[times.index(min(times))]

    def _time_ms(self, shape: ProductShape, plan: ProductPlan) -> float:
        if self._run(shape, plan, 0):
            return float("inf")
        recording = self._device.record(lambda: self._run_all(shape, plan))
        first, last = Event(timing=True), Event(timing=True)
        recording.replay(self._device)
        first.record(self._device)
        recording.replay(self._device)
        recording.replay(self._device)
        last.record(self._device)
        last.wait()
        return last.ms_since(first)

    def _run_all(self, shape: ProductShape, plan: ProductPlan) -> None:
        for index in range(_FEW if shape.rows > _FEW_FROM_ROWS else _MANY):
            self._run(shape, plan, index)

    def _run(self, shape: ProductShape, plan: ProductPlan, index: int) -> int:
        size = _weight_bytes(shape)
        weight = self._weights.address + index % (self._weights.num_bytes // size) * size
        return self._submit(plan, shape.accumulate, self._x.address, weight, self._out.address)


def _weight_bytes(shape: ProductShape) -> int:
    """Bytes of a weight, as a multiple of what products need their operands aligned to."""
    return -(-shape.n * shape.k * shape.operands.itemsize // 256) * 256
