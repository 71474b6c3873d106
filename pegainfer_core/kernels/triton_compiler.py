"""Compiles Triton kernels. Only for compiler processes: Triton takes a server's memory."""

from __future__ import annotations

import hashlib
import importlib
from typing import TYPE_CHECKING

from pegainfer_core.kernels.manifest import ManifestEntry
from pegainfer_core.kernels.spec import source_hash

if TYPE_CHECKING:
    from pegainfer_core.kernels.arch import Arch
    from pegainfer_core.kernels.spec import KernelSpec

_ALIGNED = ":16"


def compile_triton(spec: KernelSpec, arch: Arch) -> tuple[ManifestEntry, bytes]:
    """Compile one kernel.

    Returns:
        Its manifest entry and its cubin.

    Raises:
        Exception: Whatever Triton raises.
        ValueError: The spec's arguments do not match the function's.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    module = importlib.import_module(f"pegainfer_core.kernels.src.{spec.module}")
    function = getattr(module, spec.function)
    constants = dict(spec.constants)
    names = [name for name in function.arg_names if name not in constants]
    if len(names) != len(spec.arguments):
        raise ValueError(f"{spec.function} takes {names}, not {len(spec.arguments)} arguments")
    types = dict(zip(names, spec.arguments, strict=True))
    signature = {
        name: types[name].removesuffix(_ALIGNED) if name in types else "constexpr"
        for name in function.arg_names
    }
    aligned = {
        (function.arg_names.index(name),): [["tt.divisibility", 16]]
        for name, kind in types.items()
        if kind.endswith(_ALIGNED)
    }
    source = ASTSource(function, signature=signature, constexprs=constants, attrs=aligned)
    options = {
        "num_warps": spec.num_warps,
        "num_stages": spec.num_stages,
        "enable_fp_fusion": spec.contracts,
    }
    compiled = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    code: bytes = compiled.asm["cubin"]
    facts = compiled.metadata
    entry = ManifestEntry(
        spec=spec,
        arch=arch,
        symbol=facts.name,
        cubin_sha256=hashlib.sha256(code).hexdigest(),
        shared_bytes=facts.shared,
        num_warps=facts.num_warps,
        scratch_bytes=facts.global_scratch_size,
        source_sha256=source_hash(spec.module),
        triton_version=triton.__version__,
    )
    return entry, code
