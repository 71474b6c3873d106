"""Reads and sets how many threads NumPy's matrix products use, while the process runs.

NumPy has no call for it and reads the environment at import only, so the library it loaded is asked
directly. Knows OpenBLAS under the names that NumPy's wheels and distributions give it.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from pathlib import Path
from typing import Final

from pegainfer_core.weights import ConfigError

#: Prefix and suffix of OpenBLAS's names.
_SPELLINGS: Final = (
    ("scipy_openblas_", "64_"),
    ("scipy_openblas_", ""),
    ("openblas_", "64_"),
    ("openblas_", ""),
)


class BlasThreads:
    """The thread count of a loaded OpenBLAS; one number for the whole process.

    While anyone holds the library, its products have a single thread.
    """

    _lock = threading.Lock()
    _num_holders = 0
    _own = 0

    def __init__(self, library: ctypes.CDLL, prefix: str, suffix: str) -> None:
        self._get = getattr(library, f"{prefix}get_num_threads{suffix}")
        self._set = getattr(library, f"{prefix}set_num_threads{suffix}")

    def get(self) -> int:
        """Threads that products use now."""
        return int(self._get())

    def set(self, num_threads: int) -> None:
        """Use so many threads from now on."""
        self._set(ctypes.c_int(num_threads))

    def own(self) -> int:
        """Threads that products use while nobody holds the library."""
        return self._own if self._num_holders else self.get()

    def set_own(self, num_threads: int) -> None:
        """Change that number, now or for when the last holder lets go."""
        with self._lock:
            if self._num_holders:
                self._own = num_threads
            else:
                self.set(num_threads)

    def hold(self) -> None:
        """Give products a single thread until `release`; holders are counted."""
        with self._lock:
            if not self._num_holders:
                self._own = self.get()
                self.set(1)
            self._num_holders += 1

    def release(self) -> None:
        """End one `hold`."""
        with self._lock:
            self._num_holders -= 1
            if not self._num_holders:
                self.set(self._own)


def find_blas_threads() -> BlasThreads | None:
    """OpenBLAS as NumPy loaded it, the same object each time; None for another library."""
    return _find(_SPELLINGS)


@cache
def _find(spellings: tuple[tuple[str, str], ...]) -> BlasThreads | None:
    for path in _loaded_libraries():
        library = ctypes.CDLL(path)
        for prefix, suffix in spellings:
            if hasattr(library, f"{prefix}set_num_threads{suffix}"):
                return BlasThreads(library, prefix, suffix)
    return None


def set_blas_threads(blas: BlasThreads | None, num_threads: int) -> None:
    """Use so many threads from now on, in the whole process.

    Raises:
        ConfigError: The number is below 1, or NumPy was built on a library other than OpenBLAS.
    """
    if num_threads < 1:
        raise ConfigError(f"threads is {num_threads}; expected at least 1")
    if blas is None:
        raise ConfigError(
            f"threads is {num_threads}, but NumPy here was built without OpenBLAS; leave it out, "
            "and set the environment variable of its library, such as OMP_NUM_THREADS, before the "
            "start"
        )
    blas.set_own(num_threads)


def _loaded_libraries() -> list[str]:
    """Shared objects of this process that may be OpenBLAS."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return []
    paths = {line.split(maxsplit=5)[-1] for line in lines}
    return sorted(path for path in paths if "blas" in Path(path).name)
