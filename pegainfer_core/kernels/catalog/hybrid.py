"""Which kernels a decoder with gated delta-rule layers needs beside a plain one's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.kernels.catalog.attention import decode_attention, prepare_heads
from pegainfer_core.kernels.catalog.fused import fused_specs
from pegainfer_core.kernels.catalog.recurrent import recurrent_specs, sigmoid_mul
from pegainfer_core.kernels.catalog.rows import rms_norm
from pegainfer_core.kernels.catalog.sizes import OVERLAP_ARCH

if TYPE_CHECKING:
    from pegainfer_core.kernels.arch import Arch
    from pegainfer_core.kernels.catalog.delta_sizes import DeltaSizes
    from pegainfer_core.kernels.catalog.sizes import DecoderSizes
    from pegainfer_core.kernels.spec import KernelSpec


def hybrid_specs(
    sizes: DecoderSizes, delta: DeltaSizes, rotary_dim: int, arch: Arch
) -> list[KernelSpec]:
    """Every kernel that such a decoder launches and `decoder_specs` does not name.

    Args:
        sizes: Of the decoder, of its attention layers.
        delta: Of its delta-rule layers.
        rotary_dim: Channels of a head that turn.
        arch: Where it runs.
    """
    element, hidden = sizes.element, sizes.hidden
    heads = prepare_heads(
        element, sizes.head_dim, rotary_dim // 2, sizes.page_tokens,
        norm=True, rope=True, write=True, weight="fp32",
    )  # fmt: skip
    return [
        *recurrent_specs(delta, arch),
        *_decode_specs(sizes, rotary_dim, arch),
        *(rms_norm(element, hidden, overlaps=o, weight="fp32") for o in _overlaps(arch)),
        heads,
        sigmoid_mul(element, sizes.num_heads * sizes.head_dim),
        *_product_specs(sizes, delta, arch),
    ]


def _decode_specs(sizes: DecoderSizes, rotary_dim: int, arch: Arch) -> list[KernelSpec]:
    """Decode attention that turns heads on its way: only where norms have the activations' type."""
    if sizes.element != "fp32":
        return []
    group = sizes.num_heads // sizes.num_kv_heads
    return [
        decode_attention(
            sizes.element, sizes.head_dim, rotary_dim // 2, sizes.page_tokens, group,
            overlaps=arch >= OVERLAP_ARCH,
        )
    ]  # fmt: skip


def _overlaps(arch: Arch) -> tuple[bool, ...]:
    return (False, True) if arch >= OVERLAP_ARCH else (False,)


def _product_specs(sizes: DecoderSizes, delta: DeltaSizes, arch: Arch) -> list[KernelSpec]:
    """Products behind norms whose weights are in float32, and those that `decoder_specs` misses."""
    element, hidden, inner = sizes.element, sizes.hidden, sizes.intermediate
    # Queries, their gates, keys and values.
    attended = 2 * (sizes.num_heads + sizes.num_kv_heads) * sizes.head_dim
    return [
        *fused_specs(element, hidden, delta.projected_width, arch, norm=True, scale="fp32"),
        *fused_specs(element, hidden, attended, arch, norm=True, scale="fp32"),
        *fused_specs(element, hidden, inner, arch, norm=True, scale="fp32", gated=True),
        *fused_specs(element, delta.value_width, hidden, arch, add=True),
    ]
