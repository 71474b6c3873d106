"""The kernel cache and its manifest, without Triton and without a GPU."""

from __future__ import annotations

import hashlib
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from pegainfer_core.kernels import (
    DecoderSizes,
    KernelCache,
    KernelError,
    build_kernels,
    decoder_specs,
    default_cache_dir,
    parse_arch,
)
from pegainfer_core.kernels import spec as spec_module
from pegainfer_core.kernels.manifest import MANIFEST_NAME, ManifestEntry
from pegainfer_core.kernels.spec import source_hash

if TYPE_CHECKING:
    from pathlib import Path

    from pegainfer_core.kernels import KernelSpec

SIZES = DecoderSizes(
    element="bf16",
    hidden=2560,
    intermediate=9728,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    page_tokens=16,
)


def entry(spec: KernelSpec, code: bytes, arch: int = 90) -> ManifestEntry:
    return ManifestEntry(
        spec=spec,
        arch=arch,
        symbol=spec.function,
        cubin_sha256=hashlib.sha256(code).hexdigest(),
        shared_bytes=0,
        num_warps=4,
        scratch_bytes=0,
        source_sha256=source_hash(spec.module),
        triton_version="3.6.0",
    )


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "kernels", prebuilt=tmp_path / "prebuilt")


def test_what_was_stored_is_found_again_by_another_process(cache: KernelCache) -> None:
    specs = decoder_specs(SIZES, 90)
    assert cache.missing(specs, 90) == specs
    cache.store(entry(specs[0], b"code"), b"code")
    other = KernelCache(cache.folder)
    assert other.missing(specs, 90) == specs[1:]
    assert other.missing(specs, 80) == specs
    assert other.load(specs[0], 90).code == b"code"


def test_two_builders_do_not_lose_each_others_kernels(cache: KernelCache) -> None:
    specs = decoder_specs(SIZES, 90)
    other = KernelCache(cache.folder)
    cache.store(entry(specs[0], b"a"), b"a")
    other.store(entry(specs[1], b"b"), b"b")
    assert KernelCache(cache.folder).missing(specs[:2], 90) == []


def test_a_prebuilt_kernel_is_taken_first(cache: KernelCache, tmp_path: Path) -> None:
    spec = decoder_specs(SIZES, 90)[0]
    shipped = KernelCache(tmp_path / "prebuilt")
    shipped.store(entry(spec, b"shipped"), b"shipped")
    cache.store(entry(spec, b"own"), b"own")
    assert KernelCache(cache.folder, prebuilt=tmp_path / "prebuilt").load(spec, 90).code == (
        b"shipped"
    )


def test_a_damaged_cubin_is_named(cache: KernelCache) -> None:
    spec = decoder_specs(SIZES, 90)[0]
    cache.store(entry(spec, b"code"), b"code")
    (cubin,) = cache.folder.glob("*.cubin")
    cubin.write_bytes(b"junk")
    with pytest.raises(KernelError, match=rf"{cubin.name}: is damaged"):
        cache.load(spec, 90)
    cache.discard(spec, 90)
    assert cache.missing([spec], 90) == [spec]


@pytest.mark.parametrize("content", ["{", "[]", '{"a": 1}', "\xff"])
def test_a_damaged_manifest_means_building_again(cache: KernelCache, content: str) -> None:
    spec = decoder_specs(SIZES, 90)[0]
    cache.store(entry(spec, b"code"), b"code")
    (cache.folder / MANIFEST_NAME).write_text(content, encoding="latin-1")
    cache.reload()
    assert cache.missing([spec], 90) == [spec]
    cache.store(entry(spec, b"code"), b"code")
    assert KernelCache(cache.folder).missing([spec], 90) == []


def test_another_source_is_another_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = decoder_specs(SIZES, 90)
    keys = {spec.key(90) for spec in specs} | {spec.key(80) for spec in specs}
    assert len(keys) == 2 * len(specs)
    monkeypatch.setattr("pegainfer_core.kernels.spec.source_hash", lambda module: "edited")
    assert keys.isdisjoint(spec.key(90) for spec in specs)


def test_a_source_is_one_with_what_it_imports(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(spec_module.SOURCE_DIR, tmp_path / "src")
    monkeypatch.setattr(spec_module, "SOURCE_DIR", tmp_path / "src")

    def hashes() -> list[str]:
        source_hash.cache_clear()
        return [source_hash(name) for name in ("choice_draw", "choice_values", "argmax")]

    try:
        before = hashes()
        # Draws import it through others too.
        shared = tmp_path / "src" / "choice_values.py"
        shared.write_text(shared.read_text() + "# edited\n")
        after = hashes()
    finally:
        source_hash.cache_clear()
    assert before[0] != after[0] and before[1] != after[1] and before[2] == after[2]


def test_without_triton_the_message_says_what_to_install(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(KernelError, match=r"kernels for sm_90 are not in .*pip install triton"):
        build_kernels(cache, decoder_specs(SIZES, 90), [90])


def test_the_folder_is_the_users_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("PEGAINFER_KERNEL_CACHE", raising=False)
    assert default_cache_dir() == tmp_path / "pegainfer" / "kernels"
    monkeypatch.setenv("PEGAINFER_KERNEL_CACHE", str(tmp_path / "own"))
    assert default_cache_dir() == tmp_path / "own"


@pytest.mark.parametrize(("text", "arch"), [("sm_90", 90), ("120", 120), ("8.0", 80)])
def test_architectures(text: str, arch: int) -> None:
    assert parse_arch(text) == arch


@pytest.mark.parametrize("text", ["sm_75", "90a", "", "hopper"])
def test_what_is_no_architecture(text: str) -> None:
    with pytest.raises(KernelError, match="no GPU architecture"):
        parse_arch(text)
