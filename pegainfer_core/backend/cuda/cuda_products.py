"""Matrix products of a step: our own kernels where they are faster, else cuBLASLt."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pegainfer_core.backend.cuda.arrays import address, element
from pegainfer_core.backend.cuda.products import Products, ProductShape
from pegainfer_core.kernels import catalog

if TYPE_CHECKING:
    from pegainfer_core.backend.cuda.device import Device
    from pegainfer_core.backend.cuda.library import KernelLibrary
    from pegainfer_core.backend.tensor import Tensor


class RmsNorm(NamedTuple):
    """Of the rows before a product."""

    weight: Tensor
    eps: float


class CudaProducts:
    """Chooses and launches the product of a shape.

    Args:
        device: Where everything lies.
        library: Its kernels.
        products: The library's products.

    Attributes:
        max_gemv_rows: Up to so many rows plain products run on our own kernel, which reads the
            weights faster than cuBLASLt does.
        max_few_rows: Up to so many rows products run with what surrounds them in one launch.
    """

    def __init__(self, device: Device, library: KernelLibrary, products: Products) -> None:
        self._device = device
        self._library = library
        self._products = products
        self._overlaps = device.arch >= catalog.OVERLAP_ARCH
        self.max_gemv_rows = catalog.GEMV_ROWS[-1]
        self.max_few_rows = catalog.FEW_ROWS[-1]

    def linear(self, count: int, x: Tensor, weight: Tensor, out: Tensor) -> None:
        """See `Ops.linear`."""
        if self.takes_gemv(count, x, out):
            self.gemv(count, x, weight, out)
        else:
            self._multiply(count, x, weight, out, accumulate=False)

    def add(self, count: int, x: Tensor, weight: Tensor, hidden: Tensor) -> None:
        """`hidden` += `x` @ `weight`^T on the first `count` rows."""
        if self.takes_few_rows(count, x, hidden):
            self._few_rows(count, x, None, weight, hidden, add=True)
        elif self.takes_gemv(count, x, hidden):
            self.gemv(count, x, weight, hidden, add=True)
        else:
            self._multiply(count, x, weight, hidden, accumulate=True)

    def takes_few_rows(self, count: int, x: Tensor, out: Tensor) -> bool:
        """Whether our own kernel for few rows, which norms and activates too, computes this."""
        return (
            count <= self.max_few_rows
            and x.dtype is out.dtype
            and catalog.takes_few_rows(element(x.dtype), x.width, out.width, self._device.arch)
        )

    def normed(
        self,
        count: int,
        x: Tensor,
        norm: RmsNorm,
        weight: Tensor,
        out: Tensor,
        *,
        gated: bool = False,
    ) -> None:
        """The product of RMSNorm of `x`, in one launch; `takes_few_rows` says whether it can be.

        Args:
            count: Rows.
            x: Of which these are the first.
            norm: What is done to them.
            weight: The matrix; with `gated`, rows of the gate, then as many of what it gates.
            out: Product or, with `gated`, activation.
            gated: Whether the activation is computed.
        """
        self._few_rows(count, x, norm, weight, out, gated=gated)

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

    def _few_rows(
        self,
        count: int,
        x: Tensor,
        norm: RmsNorm | None,
        weight: Tensor,
        out: Tensor,
        *,
        gated: bool = False,
        add: bool = False,
    ) -> None:
        rows = next(rows for rows in catalog.FEW_ROWS if rows >= count)
        scale_type = element(norm.weight.dtype) if norm else "bf16"
        spec = catalog.few_rows(
            x.width, rows, norm=norm is not None, gated=gated, add=add, scale=scale_type
        )
        split = catalog.few_rows_split(x.width, norm=norm is not None)
        kernel = self._library.get(spec)
        # One more than run at once would come after all others.
        most = self._device.num_multiprocessors if split == 1 else kernel.max_clusters(split)
        teams = min(most, out.width // 8)
        scale, eps = (address(norm.weight), norm.eps) if norm else (0, 0.0)
        kernel.launch(
            self._device.stream, (teams * split, 1), address(x), scale, address(weight),
            address(out), count, out.width, eps,
        )  # fmt: skip

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
