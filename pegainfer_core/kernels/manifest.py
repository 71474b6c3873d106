"""`manifest.json` of a folder of cubins: what each of them is and how it is launched."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from pegainfer_core.kernels.errors import KernelError
from pegainfer_core.kernels.spec import KernelSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

MANIFEST_NAME: Final = "manifest.json"


class ManifestEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One compiled kernel.

    Attributes:
        spec: What it was compiled from.
        arch: Compute capability it runs on.
        symbol: Its name in the cubin.
        cubin_sha256: Content and file name of the cubin.
        shared_bytes: Dynamic shared memory a block needs.
        num_warps: Warps of a block.
        scratch_bytes: Global scratch it wants; the engine launches only kernels that want none.
        source_sha256: The source file and what it imports, as `source_hash` has it.
        triton_version: Of the compiler, if it was Triton.
        nvrtc_version: Of the compiler, if it was NVRTC.
    """

    spec: KernelSpec
    arch: int
    symbol: str
    cubin_sha256: str
    shared_bytes: int
    num_warps: int
    scratch_bytes: int
    source_sha256: str
    triton_version: str = ""
    nvrtc_version: str = ""


Entries = dict[str, ManifestEntry]
"""By `KernelSpec.key`."""


def read_manifest(folder: Path) -> Entries:
    """Entries of a folder; none when it has no manifest.

    Raises:
        KernelError: The manifest is damaged or cannot be read.
    """
    path = folder / MANIFEST_NAME
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise KernelError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return msgspec.json.decode(raw, type=Entries)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise KernelError(
            f"{path}: is damaged ({error}); remove the folder, it is built again"
        ) from error


def merge_manifest(folder: Path, entries: Mapping[str, ManifestEntry]) -> None:
    """Add entries; processes that build at the same time do not lose each other's."""
    with _locked(folder):
        try:
            known = read_manifest(folder)
        except KernelError:
            known = {}
        path = folder / MANIFEST_NAME
        partial = folder / f"{MANIFEST_NAME}.{os.getpid()}"
        partial.write_bytes(msgspec.json.format(msgspec.json.encode({**known, **entries})))
        partial.replace(path)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
