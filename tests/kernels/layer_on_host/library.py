"""Compiles `layer.cu` for the host, with its PTX replaced by what `cluster.h` does instead."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from pegainfer_core.kernels.spec import source_path

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.kernels import KernelSpec

    Halves = NDArray[np.uint16]

_REPLACED: Final = (
    "shared_address", "wait_copies", "copy", "commit", "load_shared", "load_row", "load_two",
    "pack", "multiply", "mma", "arrive_cluster", "wait_cluster", "address_in", "send", "send",
    "wait_grid",
)  # fmt: skip
_DROPPED: Final = (
    r"typedef unsigned .*?;",
    r"extern __shared__ .*?;",
    r'asm volatile\("griddepcontrol.*?\);',
)


class _Arguments(ctypes.Structure):
    _fields_ = (
        ("pointers", ctypes.c_void_p * 10),
        ("barrier", ctypes.c_void_p),
        ("rows", ctypes.c_int),
        ("epsilons", ctypes.c_float * 2),
    )


def run_layer(
    spec: KernelSpec,
    folder: Path,
    num_clusters: int,
    arrays: list[Halves],
    num_rows: int,
    epsilons: tuple[float, float],
) -> None:
    """Run the kernel on arrays in the order of its arguments.

    Every thread has to come to its end, and the barrier must be left as it was found.
    """
    library = ctypes.CDLL(str(_compiled(spec, folder)))
    barrier = np.zeros(2, np.uint32)
    arguments = _Arguments(rows=num_rows, barrier=barrier.ctypes.data)
    arguments.pointers[:] = [array.ctypes.data for array in arrays]
    arguments.epsilons[:] = epsilons
    seed = int(np.random.default_rng().integers(1 << 31))
    print("seed", seed)
    ended = library.run(
        ctypes.byref(arguments), num_clusters, spec.shared_bytes, ctypes.c_uint(seed)
    )
    assert ended, "threads wait for each other"
    assert barrier[0] == 0


def _compiled(spec: KernelSpec, folder: Path) -> Path:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    source = source_path(spec.module).read_text()
    for name in _REPLACED:
        source = _without(source, name)
    for pattern in _DROPPED:
        source = re.sub(pattern, "", source)
    (folder / "kernel.inc").write_text(source)
    (folder / "main.cpp").write_text('#include "cluster.h"\n')
    target = folder / "layer.so"
    macros = [f"-D{name}={value}" for name, value in spec.constants]
    here = str(Path(__file__).parent)
    subprocess.run(
        [
            compiler, "-w", "-O1", "-std=c++17", "-shared", "-fPIC", f"-I{here}", f"-I{folder}",
            *macros, str(folder / "main.cpp"), "-o", str(target),
        ],
        check=True,
    )  # fmt: skip
    return target


def _without(source: str, name: str) -> str:
    """The source without the first function of a name."""
    found = re.search(
        rf"(?:template <int PENDING> )?__device__ __forceinline__ [\w ]+ {name}\(", source
    )
    assert found is not None, f"there is no {name}"
    end = found.start() + source[found.start() :].index("{")
    depth = 0
    while True:
        depth += {"{": 1, "}": -1}.get(source[end], 0)
        end += 1
        if depth == 0:
            return source[: found.start()] + source[end:]
