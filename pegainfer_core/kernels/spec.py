"""What one compiled kernel is made from: source, argument types, constants, launch settings."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from pegainfer_core.kernels.arch import Arch

Language = Literal["cuda", "triton"]

SOURCE_DIR: Final = Path(__file__).parent / "src"
CUDA_ENDING: Final = ".cu"
_IMPORT: Final = re.compile(rb"^from pegainfer_core\.kernels\.src\.(\w+) import", re.MULTILINE)
_LATER_FIELDS: Final = {"contracts": True, "shared_bytes": 0}


class KernelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One variant of a kernel. Equal specs give equal code for an architecture.

    Attributes:
        module: File in `kernels/src`; a Triton module without its ending, CUDA C++ with it
            (`products.cu`).
        function: The kernel in it; C++ declares it `extern "C"`.
        arguments: Types of the run-time arguments in order, as Triton spells them (`*bf16`, `i32`,
            `fp32`, `u64`, ...). `:16` behind one promises that address or value is a multiple
            of 16.
        constants: Compile-time arguments; macros in C++.
        num_warps: Warps of a block.
        num_stages: Depth of Triton's software pipelining.
        overlaps: Whether it may be launched before the kernel ahead of it has ended; it waits by
            itself before it reads what others write. From sm_90 on.
        contracts: Whether a product and a sum may become one fused operation, which rounds once.
        shared_bytes: Dynamic shared memory of a block of C++; Triton finds its own.
    """

    module: str
    function: str
    arguments: tuple[str, ...]
    constants: tuple[tuple[str, int], ...] = ()
    num_warps: int = 4
    num_stages: int = 3
    overlaps: bool = False
    contracts: bool = True
    shared_bytes: int = 0

    def key(self, arch: Arch) -> str:
        """Names what is compiled from this spec and today's source for an architecture."""
        fields = msgspec.structs.asdict(self)
        for name, usual in _LATER_FIELDS.items():
            # As before there was a choice, so that caches stay good.
            if fields[name] == usual:
                del fields[name]
        content = msgspec.json.encode((fields, arch, source_hash(self.module)))
        return hashlib.sha256(content).hexdigest()[:32]

    @property
    def language(self) -> Language:
        """What it is written in."""
        return "cuda" if self.module.endswith(CUDA_ENDING) else "triton"

    @property
    def label(self) -> str:
        """For messages."""
        constants = ", ".join(f"{name} {value}" for name, value in self.constants)
        return f"{self.function}({', '.join(self.arguments)}; {constants})"


@cache
def source_hash(module: str) -> str:
    """SHA-256 of a source file and of those beside it that it imports."""
    content = source_path(module).read_bytes()
    parts = [content, *(source_hash(name.decode()).encode() for name in _IMPORT.findall(content))]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def source_path(module: str) -> Path:
    """Where the source of a module lies."""
    return SOURCE_DIR / (module if module.endswith(CUDA_ENDING) else f"{module}.py")
