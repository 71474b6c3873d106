"""Kernels: what can be built, building it ahead of time, and finding what was built.

Knows no device. Triton and NVRTC are needed to build, by processes of their own; whoever only
launches what was built never loads them.
"""

from pegainfer_core.kernels.arch import ARCHITECTURES, Arch, parse_arch
from pegainfer_core.kernels.build import build_kernels
from pegainfer_core.kernels.cache import Cubin, KernelCache, default_cache_dir
from pegainfer_core.kernels.catalog import DecoderSizes, decoder_specs
from pegainfer_core.kernels.errors import KernelError
from pegainfer_core.kernels.spec import KernelSpec

__all__ = [
    "ARCHITECTURES",
    "Arch",
    "Cubin",
    "DecoderSizes",
    "KernelCache",
    "KernelError",
    "KernelSpec",
    "build_kernels",
    "decoder_specs",
    "default_cache_dir",
    "parse_arch",
]
