"""Building ahead of time needs no GPU: every kernel for every architecture, where Triton is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pegainfer_core.kernels import ARCHITECTURES, KernelCache, KernelError, build_kernels
from pegainfer_core.kernels import decoder_specs as specs_of
from pegainfer_core.kernels.spec import KernelSpec
from tests.kernels.test_cache import SIZES

if TYPE_CHECKING:
    from pathlib import Path

# Runs where Triton is: with what `make test-gpu` installs, though it never touches a GPU.
pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_kernel_builds(arch: int, tmp_path: Path) -> None:
    cache = KernelCache(tmp_path)
    specs = specs_of(SIZES, arch)
    seen: list[tuple[int, int]] = []
    built = build_kernels(cache, specs, [arch], progress=lambda *done: seen.append(done))
    assert built == len(specs) == len(seen)
    assert cache.missing(specs, arch) == []
    for spec in specs:
        entry, code = cache.load(spec, arch)
        assert code.startswith(b"\x7fELF")
        assert entry.scratch_bytes == 0
        assert entry.shared_bytes <= 99 << 10
    assert build_kernels(cache, specs, [arch]) == 0


def test_a_kernel_that_does_not_compile_is_named(tmp_path: Path) -> None:
    spec = KernelSpec(module="rows", function="add_rows", arguments=("*bf16",))
    with pytest.raises(KernelError, match=r"cannot compile add_rows.*not 1 arguments"):
        build_kernels(KernelCache(tmp_path), [spec], [90])
