"""Building CUDA C++ ahead of time: needs NVRTC, no GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pegainfer_core.kernels import KernelCache, KernelError, build_kernels, catalog
from pegainfer_core.kernels.catalog import LAYER_ROWS, LayerWidths

if TYPE_CHECKING:
    from pathlib import Path

# Runs where compilers are, with what `make test-kernels` installs; it never touches a GPU.
pytestmark = pytest.mark.gpu

WIDTHS = LayerWidths(hidden=384, query=384, inner=1408, qkv=640, gate_up=True, down=True)


@pytest.mark.parametrize("arch", [90, 100])
def test_layer_products_build(arch: int, tmp_path: Path) -> None:
    cache = KernelCache(tmp_path)
    specs = [catalog.layer_products(WIDTHS, rows, arch) for rows in LAYER_ROWS]
    assert build_kernels(cache, specs, [arch]) == len(specs)
    for spec in specs:
        entry, code = cache.load(spec, arch)
        assert code.startswith(b"\x7fELF") and b"layer_products" in code
        assert entry.shared_bytes == spec.shared_bytes
        assert entry.nvrtc_version and not entry.triton_version
    assert build_kernels(cache, specs, [arch]) == 0


def test_a_compilers_log_is_in_the_message(tmp_path: Path) -> None:
    spec = catalog.layer_products(WIDTHS, 1, 90, TILES=-1)
    with pytest.raises(KernelError, match=r"cannot compile layer_products\(.*for sm_90.*error"):
        build_kernels(KernelCache(tmp_path), [spec], [90])
