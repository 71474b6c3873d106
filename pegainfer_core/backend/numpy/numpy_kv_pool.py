"""KV pages in host memory, with the copies that speed up decoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pegainfer_core.backend.kv_pool import KvPool

if TYPE_CHECKING:
    from pegainfer_core.backend.numpy.dense_contexts import DenseContexts


@dataclass(frozen=True, slots=True, eq=False)
class NumpyKvPool(KvPool):
    """A pool on NumPy.

    Attributes:
        contexts: Must be told of every page that is written outside of a step.
    """

    contexts: DenseContexts
