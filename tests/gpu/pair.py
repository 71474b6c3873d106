"""The same random step, parameters and pages on NumPy and on CUDA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pegainfer_core.backend import AttentionShape, DType, KvLayout, NumpyBackend, StepMetadata
from pegainfer_core.backend.cuda.arrays import address
from pegainfer_core.backend.numpy.arrays import stored_pages
from pegainfer_core.weights import round_floats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pegainfer_core.backend import Backend, Batch, KvPool, Tensor
    from pegainfer_core.backend.cuda import CudaBackend

    FloatArray = NDArray[np.float32]

#: Norm of the difference over the norm of the reference. Both round alike, but not at the same
#: places: bfloat16 keeps eight bits.
TOLERANCE = {DType.FLOAT32: 1e-5, DType.BFLOAT16: 6e-3}

MAX_TOKENS = 1024
MAX_ROWS = 80
MAX_CONTEXT = 16_384


@dataclass
class Both:
    """One thing on both backends."""

    numpy: Tensor
    cuda: Tensor


class Pair:
    """A reference backend and a CUDA backend that get the same inputs."""

    def __init__(self, cuda: CudaBackend, dtype: DType, seed: int) -> None:
        self.numpy = NumpyBackend()
        self.cuda = cuda
        self.dtype = dtype
        self.random = np.random.default_rng(seed)
        self.workspaces = [
            backend.workspace(MAX_TOKENS, MAX_CONTEXT) for backend in (self.numpy, self.cuda)
        ]

    def values(self, *shape: int, scale: float = 1.0, center: float = 0.0) -> FloatArray:
        """Random values of the pair's type."""
        drawn = (self.random.standard_normal(shape) * scale + center).astype(np.float32)
        round_floats(drawn, self.dtype.value)
        return drawn

    def tensor(self, values: FloatArray, dtype: DType | None = None) -> Both:
        kind = self.dtype if dtype is None else dtype
        return Both(self.numpy.adopt(values.copy(), kind), self.cuda.adopt(values, kind))

    def random_tensor(self, *shape: int, scale: float = 1.0, center: float = 0.0) -> Both:
        return self.tensor(self.values(*shape, scale=scale, center=center))

    def poison(self, *shape: int, dtype: DType | None = None) -> Both:
        """An output: not a number until it is written."""
        return self.tensor(np.full(shape, np.nan, np.float32), dtype)

    def host(self, tensors: Both, count: int) -> tuple[FloatArray, FloatArray]:
        return (
            self.numpy.to_host(tensors.numpy, count),
            self.cuda.to_host(tensors.cuda, count),
        )

    def check(self, tensors: Both, count: int, columns: slice = slice(None)) -> None:
        """The first rows are close, and every value was written."""
        expected, found = (values[:, columns] for values in self.host(tensors, count))
        assert_close(found, expected, self.dtype)

    def both(self, call: str, *arguments: object) -> None:
        """Call an op on both backends; arguments of type `Both` and of pools are split."""
        for index, backend in enumerate((self.numpy, self.cuda)):
            getattr(backend.ops, call)(*(self._pick(item, index) for item in arguments))

    def workspace(self) -> Split:
        return Split(*self.workspaces)

    def _pick(self, item: object, index: int) -> object:
        if isinstance(item, Both):
            return (item.numpy, item.cuda)[index]
        return (item.numpy, item.cuda)[index] if isinstance(item, Split) else item


@dataclass
class Split:
    """Objects that are no tensors."""

    numpy: object
    cuda: object


def assert_close(found: FloatArray, expected: FloatArray, dtype: DType) -> None:
    assert np.isfinite(expected).all()
    assert np.isfinite(found).all(), f"{np.isnan(found).sum()} values were not written"
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert error <= TOLERANCE[dtype], error


class Step:
    """A step with rows of given (context, query tokens), on pages in random order."""

    def __init__(self, pair: Pair, layout: KvLayout, rows: Sequence[tuple[int, int]]) -> None:
        self.pair, self.layout = pair, layout
        num_pages = sum(layout.pages_for(context) for context, _ in rows)
        self.pools = [self._pool(backend, num_pages) for backend in (pair.numpy, pair.cuda)]
        self._fill()
        order = (pair.random.permutation(num_pages) + 1).tolist()
        self.metadata = StepMetadata(MAX_TOKENS, MAX_ROWS, num_pages + 8, layout.page_tokens)
        for context, count in rows:
            pages = [order.pop() for _ in range(layout.pages_for(context))]
            ids = pair.random.integers(0, 97, count).tolist()
            self.metadata.add_row(ids, context - count, pages, samples=True)
        num_decode = next((i for i, row in enumerate(rows) if row[1] > 1), len(rows))
        self.metadata.finish(num_decode)
        self.num_tokens = self.metadata.num_tokens

    def batch(self) -> Split:
        batches: list[Batch] = [
            backend.upload(self.metadata) for backend in (self.pair.numpy, self.pair.cuda)
        ]
        return Split(*batches)

    def kv(self) -> Split:
        return Split(*self.pools)

    def check_pages(self) -> None:
        """All pages are close on both, written or not, except the padding page."""
        numpy_pages, cuda_pages = (self._pages(index)[1:] for index in (0, 1))
        assert_close(cuda_pages.reshape(-1), numpy_pages.reshape(-1), self.pair.dtype)

    def _pool(self, backend: Backend, num_pages: int) -> KvPool:
        return backend.kv_pool(self.layout, num_pages)

    def _fill(self) -> None:
        from pegainfer_core.backend.cuda.device import host_address  # needs CuPy

        stored = stored_pages(self.pools[0])
        values = self.pair.values(*stored.shape)
        stored[...] = (
            values.view(np.uint16)[..., 1::2] if self.pair.dtype is DType.BFLOAT16 else values
        )
        device = self.pair.cuda.device
        device.upload(address(self.pools[1].pages), host_address(stored), stored.nbytes)
        device.synchronize()

    def _pages(self, index: int) -> FloatArray:
        if index:
            return self.pair.cuda.to_host(self.pools[1].pages, self.pools[1].num_pages)
        stored = stored_pages(self.pools[0])
        if self.pair.dtype is not DType.BFLOAT16:
            return stored.astype(np.float32)
        return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)


def attention_shape(num_heads: int, num_kv_heads: int, head_dim: int) -> AttentionShape:
    return AttentionShape(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        scale=head_dim**-0.5,
        norm_eps=1e-6,
    )


def kv_layout(shape: AttentionShape, page_tokens: int, dtype: DType) -> KvLayout:
    return KvLayout(
        num_layers=3,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        page_tokens=page_tokens,
        dtype=dtype,
    )
