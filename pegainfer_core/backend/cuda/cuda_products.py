"""Matrix products of a step: our own kernels where they are faster, else cuBLASLt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.backend.cuda.arrays import address, element
from pegainfer_core.backend.cuda.products import Products, ProductShape
from pegainfer_core.kernels import catalog

if TYPE_CHECKING:
    from pegainfer_core.backend.cuda.device import Device
    from pegainfer_core.backend.cuda.library import KernelLibrary
    from pegainfer_core.backend.tensor import Tensor


class CudaProducts:
    """Chooses and launches the product of a shape.

    Args:
        device: Where everything lies.
        library: Its kernels.
        products: The library's products.

    Attributes:
        max_gemv_rows: Up to so many rows products run on our own kernel, which reads the weights
            faster than cuBLASLt does and spares the launches around it.
    """

    def __init__(self, device: Device, library: KernelLibrary, products: Products) -> None:
        self._device = device
        self._library = library
        self._products = products
        self._overlaps = device.arch >= catalog.OVERLAP_ARCH
        self.max_gemv_rows = catalog.GEMV_ROWS[-1]

    def linear(self, count: int, x: Tensor, weight: Tensor, out: Tensor) -> None:
        """See `Ops.linear`."""
        if self.takes_gemv(count, x, out):
            self.gemv(count, x, weight, out)
        else:
            self._multiply(count, x, weight, out, accumulate=False)

    def add(self, count: int, x: Tensor, weight: Tensor, hidden: Tensor) -> None:
        """`hidden` += `x` @ `weight`^T on the first `count` rows."""
        if self.takes_gemv(count, x, hidden):
            self.gemv(count, x, weight, hidden, add=True)
        else:
            self._multiply(count, x, weight, hidden, accumulate=True)

    def takes_gemv(self, count: int, x: Tensor, out: Tensor) -> bool:
        """Whether our own kernel computes this product."""
        rows = _gemv_rows(count)
        return (
            count <= self.max_gemv_rows
            and catalog.takes_gemv(x.width)
            and x.dtype is out.dtype
            and rows <= x.shape[0]
            and rows <= out.shape[0]
        )

    def gemv(
        self,
        count: int,
        x: Tensor,
        weight: Tensor,
        out: Tensor,
        *,
        gated: bool = False,
        add: bool = False,
    ) -> None:
        """Launch our own kernel; with `gated`, `out` is the activation of the product's halves."""
        spec = catalog.gemv(
            element(x.dtype),
            x.width,
            _gemv_rows(count),
            overlaps=self._overlaps,
            gated=gated,
            add=add,
        )
        self._library.get(spec).launch(
            self._device.stream,
            (out.width, 1),
            address(x),
            address(weight),
            address(out),
            out.width,
        )

    def _multiply(
        self, count: int, x: Tensor, weight: Tensor, out: Tensor, *, accumulate: bool
    ) -> None:
        rows = min(_round_rows(count), x.shape[0], out.shape[0])
        n, k = weight.shape
        shape = ProductShape(rows, n, k, x.dtype, out.dtype, accumulate)
        self._products.run(shape, address(x), address(weight), address(out))


def _gemv_rows(count: int) -> int:
    return next((rows for rows in catalog.GEMV_ROWS if rows >= count), count)


def _round_rows(count: int) -> int:
    """Rows that a product computes for `count` of them: few different sizes, so few plans.

    What is in the rows behind the step's own comes out as garbage that nobody reads.
    """
    if count <= 16:
        return count
    step = 16 if count <= 256 else 64
    return -(-count // step) * step
