"""`pegainfer kernels build`: compiles what decoders of released sizes launch, ahead of time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tqdm import tqdm

from pegainfer_core.kernels import (
    ARCHITECTURES,
    DecoderSizes,
    KernelCache,
    build_kernels,
    catalog,
    decoder_specs,
    parse_arch,
)

if TYPE_CHECKING:
    from pegainfer_core.cli.core_commands import KernelsBuildOptions
    from pegainfer_core.kernels import Arch, KernelSpec

_RELEASED: Final = (
    (1024, 3072, 16, 8),
    (2048, 6144, 16, 8),
    (2560, 9728, 32, 8),
    (4096, 12288, 32, 8),
    (5120, 17408, 40, 8),
    (5120, 25600, 64, 8),
)
"""Hidden and intermediate width, query and key/value heads of Qwen3 0.6B to 32B."""

_HEAD_DIM: Final = 128
_VOCAB_SIZE: Final = 151936
_PAGE_TOKENS: Final = (16, 32, 64)


def build(options: KernelsBuildOptions) -> int:
    """Build what the folder lacks, with a progress bar.

    Raises:
        KernelError: An architecture is unknown, Triton is missing, or a kernel does not compile.
    """
    names = options.arch.split(",")
    archs = ARCHITECTURES if names == ["all"] else tuple(parse_arch(name) for name in names)
    cache = KernelCache(None if options.out is None else Path(options.out))
    specs = {arch: released_specs(arch) for arch in archs}
    with tqdm(desc="building kernels", disable=None) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        built = sum(build_kernels(cache, specs[arch], [arch], progress=show) for arch in archs)
    listed = ", ".join(f"{len(specs[arch])} for sm_{arch}" for arch in archs)
    print(f"built {built} kernels; {cache.folder} has {listed}")
    return 0


def released_specs(arch: Arch) -> list[KernelSpec]:
    """Kernels of every released size and page size, each once."""
    found = dict.fromkeys(catalog.choice_specs(_VOCAB_SIZE, _VOCAB_SIZE))
    for hidden, intermediate, num_heads, num_kv_heads in _RELEASED:
        for page_tokens in _PAGE_TOKENS:
            sizes = DecoderSizes(
                element="bf16",
                hidden=hidden,
                intermediate=intermediate,
                num_heads=num_heads,
                num_kv_heads=num_kv_heads,
                head_dim=_HEAD_DIM,
                page_tokens=page_tokens,
            )
            found |= dict.fromkeys(decoder_specs(sizes, arch))
    return list(found)
