"""What a device does with a cache that is incomplete or damaged. Needs neither GPU nor Triton."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from pegainfer_core.backend.cuda import library as library_module
from pegainfer_core.backend.cuda.errors import CudaError, DeviceMemoryError
from pegainfer_core.backend.cuda.library import KernelLibrary
from pegainfer_core.kernels import KernelCache, KernelError, decoder_specs
from pegainfer_core.kernels.manifest import MANIFEST_NAME
from tests.kernels.test_cache import SIZES, entry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pegainfer_core.kernels import Cubin, KernelSpec

ARCH = 90
SPECS = decoder_specs(SIZES, ARCH)[:5]


class FakeKernel:
    """Loads what the fake compiler made; refuses other code as a driver does."""

    def __init__(self, cubin: Cubin) -> None:
        if cubin.code == b"no memory":
            raise DeviceMemoryError("loading a kernel failed: CUDA_ERROR_OUT_OF_MEMORY (2)")
        if not cubin.code.startswith(b"good"):
            raise CudaError("loading a kernel failed: CUDA_ERROR_INVALID_IMAGE (200)")
        self.code = cubin.code


class Compiler:
    """Counts what it builds; makes code that loads, unless told otherwise."""

    def __init__(self) -> None:
        self.built: list[KernelSpec] = []
        self.code = b"good"

    def __call__(
        self,
        cache: KernelCache,
        specs: list[KernelSpec],
        archs: list[int],
        *,
        progress: Callable[[int, int], None],
    ) -> int:
        for done, spec in enumerate(specs):
            code = self.code + spec.label.encode()
            cache.store(entry(spec, code), code)
            progress(done + 1, len(specs))
        self.built += specs
        return len(specs)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    made = Compiler()
    monkeypatch.setattr(library_module, "Kernel", FakeKernel)
    monkeypatch.setattr(library_module, "build_kernels", made)
    return made


@pytest.fixture
def folder(tmp_path: Path, compiler: Compiler) -> Path:
    """A complete cache."""
    KernelLibrary(ARCH, cache_of(tmp_path / "kernels")).prepare(SPECS)
    assert compiler.built == SPECS
    compiler.built.clear()
    return tmp_path / "kernels"


def cache_of(folder: Path) -> KernelCache:
    return KernelCache(folder, prebuilt=folder.parent / "prebuilt")


def check_all_load(folder: Path) -> None:
    library = KernelLibrary(ARCH, cache_of(folder))
    library.prepare(SPECS)
    assert [library.get(spec).code for spec in SPECS] == [
        b"good" + spec.label.encode() for spec in SPECS
    ]


def test_a_complete_cache_is_loaded_without_a_compiler(folder: Path, compiler: Compiler) -> None:
    check_all_load(folder)
    assert compiler.built == []


@pytest.mark.parametrize("content", [b"", b"good but truncated"])
def test_damaged_cubins_are_built_again_at_once(
    folder: Path, compiler: Compiler, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = sorted(folder.glob("*.cubin"))[:3]
    for path in damaged:
        path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        check_all_load(folder)
    assert len(compiler.built) == 3
    assert all(path.name in caplog.text for path in damaged)
    compiler.built.clear()
    check_all_load(folder)
    assert compiler.built == []


def test_a_cubin_that_the_driver_refuses_is_built_again(folder: Path, compiler: Compiler) -> None:
    """Its hash is right: whoever built it was wrong, or is newer than this driver."""
    cache = cache_of(folder)
    cache.store(entry(SPECS[0], b"for another GPU"), b"for another GPU")
    check_all_load(folder)
    assert compiler.built == SPECS[:1]


def test_a_compiler_newer_than_the_driver(tmp_path: Path, compiler: Compiler) -> None:
    compiler.code = b"too new"
    library = KernelLibrary(ARCH, cache_of(tmp_path / "kernels"))
    with pytest.raises(KernelError, match=r"refused: .*INVALID_IMAGE.*update it, or install"):
        library.get(SPECS[0])


@pytest.mark.parametrize("content", ["{", "[]", '{"a": 1}'])
def test_a_damaged_manifest_means_building_all_again(
    folder: Path, compiler: Compiler, content: str
) -> None:
    (folder / MANIFEST_NAME).write_text(content)
    check_all_load(folder)
    assert compiler.built == SPECS


def test_a_removed_cubin_is_built_again(folder: Path, compiler: Compiler) -> None:
    next(folder.glob("*.cubin")).unlink()
    check_all_load(folder)
    assert len(compiler.built) == 1


def test_a_damaged_kernel_that_came_with_the_package(folder: Path, compiler: Compiler) -> None:
    """Nothing of the package is written; the new one goes to the user's folder."""
    own = folder.parent / "own"
    cubin = next(folder.glob("*.cubin"))
    cubin.write_bytes(b"junk")
    library = KernelLibrary(ARCH, KernelCache(own, prebuilt=folder))
    library.prepare(SPECS)
    assert len(compiler.built) == 1
    assert cubin.read_bytes() == b"junk"
    assert len(list(own.glob("*.cubin"))) == 1


def test_no_memory_is_no_damage(folder: Path, compiler: Compiler) -> None:
    cache = cache_of(folder)
    cache.store(entry(SPECS[0], b"no memory"), b"no memory")
    with pytest.raises(DeviceMemoryError, match="OUT_OF_MEMORY"):
        KernelLibrary(ARCH, cache_of(folder)).prepare(SPECS)
    assert compiler.built == []


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = cache_of(tmp_path / "file" / "kernels")
    with pytest.raises(KernelError, match=r"cannot be kept in .*kernels: .*PEGAINFER_KERNEL_CACHE"):
        cache.store(entry(SPECS[0], b"code"), b"code")
