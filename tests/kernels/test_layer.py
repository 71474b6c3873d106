"""Which of a decoder's products go into one launch, and what a variant takes. Needs no compiler."""

from __future__ import annotations

import hashlib
import sys

import msgspec
import pytest

from pegainfer_core.kernels import KernelError, catalog, nvrtc_compiler
from pegainfer_core.kernels.catalog import LAYER_ROWS, LayerWidths
from pegainfer_core.kernels.spec import KernelSpec, source_hash, source_path

SHARED_BYTES = 227 << 10
"""Of a multiprocessor; every block has 1 KiB more than it asks for."""

#: Query, hidden, intermediate and QKV width of Qwen3 0.6B, 1.7B, 4B, 8B and 14B.
RELEASED = (
    (2048, 1024, 3072, 4096),
    (2048, 2048, 6144, 4096),
    (4096, 2560, 9728, 6144),
    (4096, 4096, 12288, 6144),
    (5120, 5120, 17408, 7168),
)


def widths_of(query: int, hidden: int, inner: int, qkv: int) -> LayerWidths:
    return LayerWidths(
        query=query, hidden=hidden, inner=inner, qkv=qkv, gate_up=inner > 0, down=inner > 0
    )


@pytest.mark.parametrize("sizes", RELEASED, ids=lambda sizes: str(sizes[1]))
@pytest.mark.parametrize("rows", [1, 8, 9, 16])
def test_two_blocks_fit_on_a_multiprocessor(sizes: tuple[int, ...], rows: int) -> None:
    widths = widths_of(*sizes)
    assert catalog.takes_layer(widths, rows, 90)
    spec = catalog.layer_products(widths, rows, 90)
    assert 2 * (spec.shared_bytes + 1024) <= SHARED_BYTES + 1024
    assert dict(spec.constants)["DEPTH"] >= 16
    assert spec.language == "cuda" and spec.overlaps


def test_one_variant_serves_many_row_counts() -> None:
    widths = widths_of(*RELEASED[2])
    specs = {catalog.layer_products(widths, rows, 90) for rows in range(1, LAYER_ROWS[-1] + 1)}
    assert len(specs) == len(LAYER_ROWS)


@pytest.mark.parametrize("arch", [80, 120])
def test_others_have_neither_clusters_nor_the_memory(arch: int) -> None:
    assert not catalog.takes_layer(widths_of(*RELEASED[2]), 1, arch)


@pytest.mark.parametrize(
    ("sizes", "rows"),
    [((4096, 2560, 9728, 6144), 33), ((96, 128, 256, 512), 1), ((512, 512, 60_000, 512), 1)],
    ids=["rows", "k no multiple", "k too long"],
)
def test_what_does_not_fit(sizes: tuple[int, ...], rows: int) -> None:
    assert not catalog.takes_layer(widths_of(*sizes), rows, 90)


def test_products_that_are_not_there_need_no_widths() -> None:
    assert LayerWidths(hidden=128, qkv=256).products == 8
    assert LayerWidths(hidden=128, query=256, inner=512, gate_up=True, down=True).products == 7


def test_keys_of_triton_kernels_stay_what_they_were() -> None:
    """Caches made before C++ kernels came stay good."""
    spec = KernelSpec(module="rows", function="add_rows", arguments=("*bf16",))
    fields = {
        name: getattr(spec, name)
        for name in (
            "module", "function", "arguments", "constants", "num_warps", "num_stages", "overlaps",
        )
    }  # fmt: skip
    content = msgspec.json.encode((fields, 90, source_hash("rows")))
    assert spec.key(90) == hashlib.sha256(content).hexdigest()[:32]


def test_cuda_sources_are_files_of_their_own() -> None:
    spec = catalog.layer_products(widths_of(*RELEASED[2]), 1, 90)
    assert source_path(spec.module).is_file()
    assert spec.key(90) != msgspec.structs.replace(spec, shared_bytes=0).key(90)


def test_without_nvrtc_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    nvrtc_compiler._library.cache_clear()
    spec = catalog.layer_products(widths_of(*RELEASED[2]), 1, 90)
    with pytest.raises(KernelError, match=r"NVRTC, .*not installed.*pip install .*nvrtc"):
        nvrtc_compiler.compile_cuda(spec, 90)
