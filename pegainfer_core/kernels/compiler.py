"""Compiles kernels, in a process of its own.

`python -m pegainfer_core.kernels.compiler` reads one job a line from standard input and answers one
line each; needs neither a GPU nor torch. A compiler is loaded when the first job asks for it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from pegainfer_core.kernels.job import Answer, Job

if TYPE_CHECKING:
    from pegainfer_core.kernels.arch import Arch
    from pegainfer_core.kernels.manifest import ManifestEntry
    from pegainfer_core.kernels.spec import KernelSpec


def compile_kernel(spec: KernelSpec, arch: Arch) -> tuple[ManifestEntry, bytes]:
    """Compile one kernel in this process.

    Returns:
        Its manifest entry and its cubin.

    Raises:
        Exception: Whatever the compiler raises.
    """
    if spec.language == "cuda":
        from pegainfer_core.kernels.nvrtc_compiler import compile_cuda

        return compile_cuda(spec, arch)
    from pegainfer_core.kernels.triton_compiler import compile_triton

    return compile_triton(spec, arch)


def _answer(line: bytes) -> Answer:
    job = msgspec.json.decode(line, type=Job)
    try:
        entry, code = compile_kernel(job.spec, job.arch)
    except Exception as error:
        return Answer(error=f"{type(error).__name__}: {error}")
    return Answer(entry=entry, code=code)


def main() -> int:
    """Answer jobs until the input ends."""
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(msgspec.json.encode(_answer(line)) + b"\n")
        sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
