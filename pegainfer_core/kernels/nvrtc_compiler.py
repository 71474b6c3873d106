"""Compiles CUDA C++ kernels with NVRTC. Only for compiler processes: NVRTC takes a server's memory.

Sources include nothing: NVRTC alone, without a toolkit's headers, is enough.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from functools import cache
from typing import TYPE_CHECKING, Final

from pegainfer_core.kernels.errors import KernelError
from pegainfer_core.kernels.manifest import ManifestEntry
from pegainfer_core.kernels.spec import source_hash, source_path

if TYPE_CHECKING:
    from pegainfer_core.kernels.arch import Arch
    from pegainfer_core.kernels.spec import KernelSpec

_SPECIFIC_ARCH: Final = 90
"""From here on a target can be named with an `a`, which adds what is this architecture's alone."""


def compile_cuda(spec: KernelSpec, arch: Arch) -> tuple[ManifestEntry, bytes]:
    """Compile one kernel; its constants are macros.

    Returns:
        Its manifest entry and its cubin.

    Raises:
        KernelError: NVRTC is not installed, or refuses the source; the message has its log.
    """
    library = _library()
    program = ctypes.c_void_p()
    source = source_path(spec.module)
    status = library.nvrtcCreateProgram(
        ctypes.byref(program), source.read_bytes(), spec.module.encode(), 0, None, None
    )
    _check(status, f"reading {spec.module}")
    try:
        code = _compiled(program, _options(spec, arch))
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
    entry = ManifestEntry(
        spec=spec,
        arch=arch,
        symbol=spec.function,
        cubin_sha256=hashlib.sha256(code).hexdigest(),
        shared_bytes=spec.shared_bytes,
        num_warps=spec.num_warps,
        scratch_bytes=0,
        source_sha256=source_hash(spec.module),
        nvrtc_version=_version(),
    )
    return entry, code


def _options(spec: KernelSpec, arch: Arch) -> list[str]:
    target = f"sm_{arch}a" if arch >= _SPECIFIC_ARCH else f"sm_{arch}"
    return [
        f"--gpu-architecture={target}",
        "--std=c++17",
        f"--fmad={'true' if spec.contracts else 'false'}",
        *(f"-D{name}={value}" for name, value in spec.constants),
    ]


def _compiled(program: ctypes.c_void_p, options: list[str]) -> bytes:
    library = _library()
    array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    status = library.nvrtcCompileProgram(program, len(options), array)
    if status:
        log = _text(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog").rstrip(b"\0")
        raise KernelError(f"NVRTC {_version()}: {log.decode(errors='replace').strip()}")
    return _text(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")


def _text(program: ctypes.c_void_p, size_function: str, function: str) -> bytes:
    """Bytes that NVRTC hands out by telling their number first."""
    library = _library()
    size = ctypes.c_size_t()
    _check(getattr(library, size_function)(program, ctypes.byref(size)), size_function)
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(library, function)(program, buffer), function)
    return buffer.raw


def _check(status: int, what: str) -> None:
    if status:
        raise KernelError(f"NVRTC: {what} failed ({status})")


def _version() -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
    return f"{major.value}.{minor.value}"


@cache
def _library() -> ctypes.CDLL:
    """NVRTC, of a wheel or of the system.

    Raises:
        KernelError: It is not installed.
    """
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = load_nvidia_dynamic_lib("nvrtc").abs_path
    except Exception as error:
        raise KernelError(
            f"NVRTC, which builds it, is not installed ({error}); install it: {sys.executable} "
            "-m pip install cuda-pathfinder nvidia-cuda-nvrtc (for CUDA 12: nvidia-cuda-nvrtc-cu12)"
        ) from error
    return ctypes.CDLL(path or "libnvrtc.so")
