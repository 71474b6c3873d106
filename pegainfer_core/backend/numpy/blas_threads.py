"""Sets how many threads NumPy's matrix products use, while the process runs.

NumPy has no call for it and reads the environment at import only, so the library it loaded is asked
directly. Knows OpenBLAS under the names that NumPy's wheels and distributions give it.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Final

from pegainfer_core.weights import ConfigError

_SETTERS: Final = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)


def set_blas_threads(num_threads: int) -> None:
    """Use so many threads from now on, in the whole process.

    Raises:
        ConfigError: The number is below 1, or NumPy was built on a library other than OpenBLAS.
    """
    if num_threads < 1:
        raise ConfigError(f"threads is {num_threads}; expected at least 1")
    for path in _loaded_libraries():
        library = ctypes.CDLL(path)
        for name in _SETTERS:
            setter = getattr(library, name, None)
            if setter is not None:
                setter(ctypes.c_int(num_threads))
                return
    raise ConfigError(
        f"threads is {num_threads}, but NumPy here was built without OpenBLAS; leave it out, and "
        "set the environment variable of its library, such as OMP_NUM_THREADS, before the start"
    )


def _loaded_libraries() -> list[str]:
    """Shared objects of this process that may be OpenBLAS."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    paths = {line.split(maxsplit=5)[-1] for line in lines}
    return sorted(path for path in paths if "blas" in Path(path).name)
