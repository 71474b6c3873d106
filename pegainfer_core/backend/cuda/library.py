"""The kernels of one device: loaded when first asked for, built when never seen."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from pegainfer_core.backend.cuda.errors import CudaError, DeviceMemoryError
from pegainfer_core.backend.cuda.kernel import Kernel
from pegainfer_core.kernels import KernelCache, KernelError, build_kernels

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pegainfer_core.kernels import Arch, KernelSpec

logger = logging.getLogger(__name__)


class KernelLibrary:
    """Kernels by spec, for the current context.

    Args:
        arch: Its device's compute capability.
        cache: Where cubins are kept.
    """

    def __init__(self, arch: Arch, cache: KernelCache | None = None) -> None:
        self._arch = arch
        self._cache = KernelCache() if cache is None else cache
        self._kernels: dict[KernelSpec, Kernel] = {}

    @property
    def folder(self) -> Path:
        """Where what was built or measured on this machine is kept."""
        return self._cache.folder

    def prepare(self, specs: Iterable[KernelSpec]) -> None:
        """Build what is missing, in parallel, and load everything.

        Raises:
            KernelError: A kernel is missing and cannot be built.
        """
        wanted = list(specs)
        missing = self._cache.missing(wanted, self._arch)
        if missing:
            self._build(missing)
        damaged = [spec for spec in dict.fromkeys(wanted) if not self._loads(spec)]
        if damaged:
            logger.warning("%d damaged kernels are built again", len(damaged))
            self._build(damaged)
        for spec in damaged:
            self.get(spec)

    def get(self, spec: KernelSpec) -> Kernel:
        """The kernel of a spec.

        Raises:
            KernelError: It cannot be built or loaded.
        """
        kernel = self._kernels.get(spec)
        if kernel is None:
            self._load(spec)
            kernel = self._kernels[spec]
        return kernel

    def _load(self, spec: KernelSpec) -> None:
        if not self._cache.missing([spec], self._arch) and self._loads(spec):
            return
        self._build([spec])
        try:
            self._kernels[spec] = Kernel(self._cache.load(spec, self._arch))
        except DeviceMemoryError:
            raise
        except CudaError as error:
            raise KernelError(
                f"a kernel just built is refused: {error}; the driver may be older than the "
                "compiler: update it, or install an older Triton"
            ) from error

    def _loads(self, spec: KernelSpec) -> bool:
        """Load a kernel that was built; forgets one that cannot be loaded, which is worth a build.

        Raises:
            DeviceMemoryError: Its code does not fit.
        """
        if spec in self._kernels:
            return True
        try:
            self._kernels[spec] = Kernel(self._cache.load(spec, self._arch))
        except DeviceMemoryError:
            raise
        except (KernelError, CudaError) as error:
            logger.warning("%s", error)
            self._cache.discard(spec, self._arch)
            return False
        return True

    def _build(self, specs: list[KernelSpec]) -> None:
        from tqdm import tqdm  # A start with all kernels at hand does without.

        started_s = time.monotonic()
        with tqdm(
            desc=f"building kernels for sm_{self._arch}", total=len(specs), disable=None
        ) as bar:
            build_kernels(
                self._cache, specs, [self._arch], progress=lambda done, _: bar.update(done - bar.n)
            )
        seconds = time.monotonic() - started_s
        logger.info("built %d kernels for sm_%d in %.1f s", len(specs), self._arch, seconds)
