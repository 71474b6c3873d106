"""Building ahead of time needs no GPU: every kernel for every architecture, where Triton is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from pegainfer_core.kernels import ARCHITECTURES, KernelCache, KernelError, build_kernels
from pegainfer_core.kernels import decoder_specs as specs_of
from pegainfer_core.kernels.spec import KernelSpec
from tests.kernels.test_cache import SIZES

if TYPE_CHECKING:
    from pathlib import Path

    from pegainfer_core.kernels import DecoderSizes

# Runs where Triton is, with what `make test-kernels` installs; it never touches a GPU.
pytestmark = pytest.mark.gpu

#: Qwen3-4B, Qwen3-0.6B, and tiny ones of both types with an odd group.
DECODERS: tuple[DecoderSizes, ...] = (
    SIZES,
    replace(SIZES, hidden=1024, intermediate=3072, num_heads=16),
    replace(SIZES, hidden=128, intermediate=256, num_heads=4, num_kv_heads=2),
    replace(
        SIZES,
        element="fp32",
        hidden=160,
        intermediate=224,
        num_heads=5,
        num_kv_heads=1,
        head_dim=32,
        page_tokens=32,
    ),
)
#: Shared memory that a block may have.
MAX_SHARED_BYTES = {80: 163 << 10, 90: 227 << 10, 100: 227 << 10, 120: 99 << 10}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_kernel_builds(arch: int, tmp_path: Path) -> None:
    cache = KernelCache(tmp_path)
    specs = list(dict.fromkeys(spec for sizes in DECODERS for spec in specs_of(sizes, arch)))
    seen: list[tuple[int, int]] = []
    built = build_kernels(cache, specs, [arch], progress=lambda *done: seen.append(done))
    assert built == len(specs) == len(seen)
    assert cache.missing(specs, arch) == []
    for spec in specs:
        entry, code = cache.load(spec, arch)
        assert code.startswith(b"\x7fELF")
        assert entry.scratch_bytes == 0
        assert entry.shared_bytes <= MAX_SHARED_BYTES[arch], spec.label
    assert build_kernels(cache, specs, [arch]) == 0


def test_a_kernel_that_does_not_compile_is_named(tmp_path: Path) -> None:
    spec = KernelSpec(module="rows", function="add_rows", arguments=("*bf16",))
    with pytest.raises(KernelError, match=r"cannot compile add_rows.*not 1 arguments"):
        build_kernels(KernelCache(tmp_path), [spec], [90])
