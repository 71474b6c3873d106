"""The two backends that every op is compared on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pegainfer_core.backend.cuda import CudaBackend


@pytest.fixture(scope="session")
def cuda() -> CudaBackend:
    from pegainfer_core.backend.cuda import CudaBackend

    return CudaBackend()
