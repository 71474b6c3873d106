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

_QWEN3: Final = (
    (1024, 3072, 16, 8),
    (2048, 6144, 16, 8),
    (2560, 9728, 32, 8),
    (4096, 12288, 32, 8),
    (5120, 17408, 40, 8),
    (5120, 25600, 64, 8),
)
"""Hidden and intermediate width, query and key/value heads of Qwen3 0.6B to 32B."""

_QWEN3_HEAD_DIM: Final = 128

_QWEN35: Final = (
    (1024, 3584, 8, 2, 16),
    (2048, 6144, 8, 2, 16),
    (2560, 9216, 16, 4, 32),
    (4096, 12288, 16, 4, 32),
    (5120, 17408, 24, 4, 48),
)
"""The same of Qwen3.5 0.8B to 27B, and value heads of its delta-rule layers."""

_QWEN35_HEAD_DIM: Final = 256
_QWEN35_ROTARY_DIM: Final = 64
_DELTA_KEY_HEADS: Final = 16
_DELTA_HEAD_DIM: Final = 128
_DELTA_CONV_TAPS: Final = 4

_VOCAB_SIZES: Final = (151936, 248320)
"""Of Qwen3 and Qwen3.5."""

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
    found: dict[KernelSpec, None] = {}
    for vocab_size in _VOCAB_SIZES:
        found |= dict.fromkeys(catalog.choice_specs(vocab_size, vocab_size))
    for hidden, intermediate, heads, kv_heads in _QWEN3:
        query, key = heads * _QWEN3_HEAD_DIM, kv_heads * _QWEN3_HEAD_DIM
        sites = (
            *((hidden, (query, key, key)), (query, (hidden,))),
            *((hidden, (intermediate, intermediate)), (intermediate, (hidden,))),
        )
        found |= dict.fromkeys(catalog.lora_specs("bf16", sites, hidden, arch))
    for page_tokens in _PAGE_TOKENS:
        for sizes in _QWEN3:
            decoder = _decoder(*sizes, _QWEN3_HEAD_DIM, page_tokens)
            found |= dict.fromkeys(decoder_specs(decoder, arch))
        for hidden, intermediate, heads, kv_heads, value_heads in _QWEN35:
            decoder = _decoder(hidden, intermediate, heads, kv_heads, _QWEN35_HEAD_DIM, page_tokens)
            hybrid = catalog.hybrid_specs(decoder, _delta(value_heads), _QWEN35_ROTARY_DIM, arch)
            found |= dict.fromkeys(decoder_specs(decoder, arch) + hybrid)
    return list(found)


def _decoder(
    hidden: int, intermediate: int, heads: int, kv_heads: int, head_dim: int, page_tokens: int
) -> DecoderSizes:
    return DecoderSizes(
        element="bf16",
        hidden=hidden,
        intermediate=intermediate,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        page_tokens=page_tokens,
    )


def _delta(value_heads: int) -> catalog.DeltaSizes:
    return catalog.DeltaSizes(
        element="bf16",
        num_key_heads=_DELTA_KEY_HEADS,
        num_value_heads=value_heads,
        key_dim=_DELTA_HEAD_DIM,
        value_dim=_DELTA_HEAD_DIM,
        conv_taps=_DELTA_CONV_TAPS,
    )
