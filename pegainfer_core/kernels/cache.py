"""Folders of compiled kernels: one that may come with the package, and the user's own."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pegainfer_core.kernels.errors import KernelError
from pegainfer_core.kernels.manifest import merge_manifest, read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pegainfer_core.kernels.arch import Arch
    from pegainfer_core.kernels.manifest import Entries, ManifestEntry
    from pegainfer_core.kernels.spec import KernelSpec

PREBUILT_DIR: Final = Path(__file__).parent / "prebuilt"
CACHE_VARIABLE: Final = "PEGAINFER_KERNEL_CACHE"


class Cubin(NamedTuple):
    """A compiled kernel and its manifest entry."""

    entry: ManifestEntry
    code: bytes


def default_cache_dir() -> Path:
    """The folder that `PEGAINFER_KERNEL_CACHE` names, else `pegainfer/kernels` in the user's."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "pegainfer" / "kernels"


class KernelCache:
    """Compiled kernels by their specs.

    Args:
        folder: Where new ones go; made when the first comes.
        prebuilt: Looked into first; never written.
    """

    def __init__(self, folder: Path | None = None, prebuilt: Path = PREBUILT_DIR) -> None:
        self.folder = default_cache_dir() if folder is None else folder
        self._folders = (prebuilt, self.folder)
        self._entries: dict[Path, Entries] = {}
        self.reload()

    def reload(self) -> None:
        """Read the manifests again, after a build. A damaged one of the user's counts as none."""
        for folder in self._folders:
            try:
                self._entries[folder] = read_manifest(folder)
            except KernelError:
                if folder != self.folder:
                    raise
                self._entries[folder] = {}

    def missing(self, specs: Iterable[KernelSpec], arch: Arch) -> list[KernelSpec]:
        """Those that must be built before they can be loaded."""
        return [spec for spec in dict.fromkeys(specs) if self._entry(spec, arch) is None]

    def load(self, spec: KernelSpec, arch: Arch) -> Cubin:
        """Read a compiled kernel.

        Raises:
            KernelError: It was not built, or its file is damaged or cannot be read.
        """
        found = self._entry(spec, arch)
        if found is None:
            raise KernelError(f"no kernel for sm_{arch} was built of {spec.label}")
        path, entry = found
        try:
            code = path.read_bytes()
        except OSError as error:
            raise KernelError(f"{path}: cannot be read: {error.strerror}") from error
        if hashlib.sha256(code).hexdigest() != entry.cubin_sha256:
            raise KernelError(f"{path}: is damaged; remove it, it is built again")
        return Cubin(entry, code)

    def store(self, entry: ManifestEntry, code: bytes) -> None:
        """Keep a compiled kernel in the cache's own folder.

        Raises:
            KernelError: The folder cannot be written.
        """
        key = entry.spec.key(entry.arch)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path = _cubin_path(self.folder, entry)
            partial = path.with_suffix(f".{os.getpid()}")
            partial.write_bytes(code)
            partial.replace(path)
            merge_manifest(self.folder, {key: entry})
        except OSError as error:
            raise KernelError(
                f"compiled kernels cannot be kept in {self.folder}: {error.strerror}; set "
                f"{CACHE_VARIABLE} to a folder that can be written"
            ) from error
        self._entries[self.folder][key] = entry

    def discard(self, spec: KernelSpec, arch: Arch) -> None:
        """Forget a damaged kernel, so that it counts as missing."""
        for entries in self._entries.values():
            entries.pop(spec.key(arch), None)

    def _entry(self, spec: KernelSpec, arch: Arch) -> tuple[Path, ManifestEntry] | None:
        key = spec.key(arch)
        for folder in self._folders:
            entry = self._entries[folder].get(key)
            if entry is not None and (path := _cubin_path(folder, entry)).exists():
                return path, entry
        return None


def _cubin_path(folder: Path, entry: ManifestEntry) -> Path:
    return folder / f"{entry.cubin_sha256[:32]}.cubin"
