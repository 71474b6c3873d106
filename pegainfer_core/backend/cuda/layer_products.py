"""The products between two attentions, put together into one launch for few rows.

Ops hand their products over one by one; they are launched when anything else is about to happen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from pegainfer_core.backend.cuda.arrays import address
from pegainfer_core.backend.dtype import DType
from pegainfer_core.kernels import catalog

if TYPE_CHECKING:
    from pegainfer_core.backend.cuda.device import Device
    from pegainfer_core.backend.cuda.library import KernelLibrary
    from pegainfer_core.backend.decoder import MlpWeights
    from pegainfer_core.backend.tensor import Tensor

_OUT: Final = 1
_GATE_UP: Final = 2
_DOWN: Final = 4
_QKV: Final = 8


@dataclass
class _Pending:
    """What was handed over. Addresses are zero where a product is not there."""

    count: int
    hidden: int
    widths: catalog.LayerWidths
    attended: int = 0
    activated: int = 0
    qkv: int = 0
    weights: list[int] = field(default_factory=lambda: [0] * 4)
    norms: list[int] = field(default_factory=lambda: [0] * 2)
    norm_eps: list[float] = field(default_factory=lambda: [0.0] * 2)


class LayerProducts:
    """Collects products and launches them.

    A method that adds a product says whether it did; when not, the product does not fit the kernel.

    Args:
        device: Where everything lies.
        library: Its kernels.

    Attributes:
        max_rows: Steps of more rows are left to others.
    """

    def __init__(self, device: Device, library: KernelLibrary) -> None:
        self._device = device
        self._library = library
        self._barrier = device.allocate(8)
        device.fill(self._barrier.address, 0, 8)
        self._pending: _Pending | None = None
        self.max_rows = catalog.MAX_LAYER_ROWS

    def add_out(self, count: int, attended: Tensor, weight: Tensor, hidden: Tensor) -> bool:
        """`hidden` += `attended` @ `weight`^T."""
        pending = self._with(count, hidden, _OUT, query=attended.width)
        if pending is None:
            return False
        pending.attended, pending.weights[0] = address(attended), address(weight)
        return True

    def add_gate_up(
        self, count: int, hidden: Tensor, weights: MlpWeights, activated: Tensor
    ) -> bool:
        """`activated` = silu(gate) * up of the norm of `hidden`."""
        pending = self._with(count, hidden, _GATE_UP, inner=activated.width, gate_up=True)
        if pending is None:
            return False
        pending.activated, pending.weights[1] = address(activated), address(weights.gate_up)
        pending.norms[0], pending.norm_eps[0] = address(weights.norm), weights.norm_eps
        return True

    def add_down(self, count: int, activated: Tensor, weight: Tensor, hidden: Tensor) -> bool:
        """`hidden` += `activated` @ `weight`^T."""
        before = self._pending
        if before is not None and before.activated not in (0, address(activated)):
            self.launch()
        pending = self._with(count, hidden, _DOWN, inner=activated.width, down=True)
        if pending is None:
            return False
        pending.activated, pending.weights[2] = address(activated), address(weight)
        return True

    def add_qkv(
        self, count: int, hidden: Tensor, norm: Tensor, norm_eps: float, weight: Tensor, qkv: Tensor
    ) -> bool:
        """`qkv` = norm of `hidden` @ `weight`^T; launched at once, an attention follows."""
        pending = self._with(count, hidden, _QKV, qkv=qkv.width)
        if pending is None:
            return False
        pending.qkv, pending.weights[3] = address(qkv), address(weight)
        pending.norms[1], pending.norm_eps[1] = address(norm), norm_eps
        self.launch()
        return True

    def launch(self) -> None:
        """Launch what was handed over, if anything was."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        spec = catalog.layer_products(pending.widths, pending.count, self._device.arch)
        kernel = self._library.get(spec)
        split = catalog.layer_split(pending.widths, catalog.layer_rows(pending.count))
        kernel.launch(
            self._device.stream, (kernel.num_clusters(split) * split, 1),
            pending.attended, pending.hidden, pending.activated, pending.qkv, *pending.weights,
            *pending.norms, self._barrier.address, pending.count, *pending.norm_eps,
        )  # fmt: skip

    def _with(self, count: int, hidden: Tensor, product: int, **widths: int) -> _Pending | None:
        """What is pending, with one more product's widths; what cannot go with it is launched."""
        pending = self._pending
        if pending is not None:
            follows = product > pending.widths.products
            if not follows or pending.count != count or pending.hidden != address(hidden):
                self.launch()
                pending = None
        known = catalog.LayerWidths(hidden=hidden.width) if pending is None else pending.widths
        wanted = msgspec.structs.replace(known, **widths)
        fits = (
            count <= self.max_rows
            and hidden.dtype is DType.BFLOAT16
            and known.inner in (0, wanted.inner)
            and catalog.takes_layer(wanted, count, self._device.arch)
        )
        if not fits:
            self.launch()
            return None
        if pending is None:
            pending = self._pending = _Pending(count, address(hidden), wanted)
        pending.widths = wanted
        return pending
