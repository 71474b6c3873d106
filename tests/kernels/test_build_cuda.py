"""Building CUDA C++ ahead of time: needs NVRTC, no GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from pegainfer_core.kernels import KernelCache, KernelError, build_kernels, catalog

if TYPE_CHECKING:
    from pathlib import Path

# Runs where compilers are, with what `make test-kernels` installs; it never touches a GPU.
pytestmark = pytest.mark.gpu

GROUPS = (1, 4, 5)


def test_kernels_build(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path)
    specs = [catalog.attend_tiles_wgmma(128, 16, group) for group in GROUPS]
    specs += [catalog.few_rows(2560, 1, norm=True, gated=True)]
    specs += [catalog.few_rows(9728, rows, add=True) for rows in (8, 16)]
    assert build_kernels(cache, specs, [90]) == len(specs)
    for spec in specs:
        entry, code = cache.load(spec, 90)
        assert code.startswith(b"\x7fELF") and spec.function.encode() in code
        assert entry.shared_bytes == spec.shared_bytes
        assert entry.nvrtc_version and not entry.triton_version
    assert build_kernels(cache, specs, [90]) == 0


def test_a_compilers_log_is_in_the_message(tmp_path: Path) -> None:
    good = catalog.attend_tiles_wgmma(128, 16, 4)
    bad = msgspec.structs.replace(good, constants=())
    with pytest.raises(KernelError, match=r"cannot compile .*for sm_90.*error"):
        build_kernels(KernelCache(tmp_path), [bad], [90])
