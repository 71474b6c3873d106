"""Which kernels a decoder of given sizes needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.kernels.catalog.attention import (
    attend_items,
    combine_items,
    decode_attention,
    decode_pages,
    prepare_row,
    takes_decode_pages,
)
from pegainfer_core.kernels.catalog.choice import argmax_parts, argmax_rows
from pegainfer_core.kernels.catalog.embedding import embed_tokens
from pegainfer_core.kernels.catalog.fused import fused_specs
from pegainfer_core.kernels.catalog.prefill import attend_tiles, attend_tiles_wgmma, takes_wgmma
from pegainfer_core.kernels.catalog.rows import rms_norm, silu_mul, take_rows
from pegainfer_core.kernels.catalog.seeded import fill_quantiles
from pegainfer_core.kernels.catalog.sizes import OVERLAP_ARCH

if TYPE_CHECKING:
    from pegainfer_core.kernels.arch import Arch
    from pegainfer_core.kernels.catalog.sizes import DecoderSizes
    from pegainfer_core.kernels.spec import KernelSpec


def decoder_specs(sizes: DecoderSizes, arch: Arch) -> list[KernelSpec]:
    """Every kernel that a decoder's steps launch on an architecture."""
    element, head_dim, page = sizes.element, sizes.head_dim, sizes.page_tokens
    group = sizes.num_heads // sizes.num_kv_heads
    overlaps = arch >= OVERLAP_ARCH
    specs = [
        embed_tokens(element, sizes.hidden),
        take_rows(element, sizes.hidden),
        rms_norm(element, sizes.hidden, overlaps=False),
        silu_mul(element, sizes.intermediate),
        prepare_row(element, head_dim // 2, page),
        attend_tiles_wgmma(head_dim, page, group)
        if takes_wgmma(element, head_dim, page, group, arch)
        else attend_tiles(element, head_dim, page, group),
        argmax_parts(),
        argmax_rows(),
        fill_quantiles(element),
    ]
    if takes_decode_pages(element, head_dim, page, group, arch):
        for fused in (False, True):
            specs.append(decode_pages(head_dim, head_dim // 2, page, group, fused=fused))
    else:
        specs += [
            attend_items(element, head_dim, page, group),
            combine_items(element, head_dim),
            decode_attention(element, head_dim, head_dim // 2, page, group, overlaps=overlaps),
        ]
    if overlaps:
        specs.append(rms_norm(element, sizes.hidden, overlaps=True))
    return specs + _product_specs(sizes, arch)


def _product_specs(sizes: DecoderSizes, arch: Arch) -> list[KernelSpec]:
    """Our own products, for the few rows that each is for."""
    element, hidden, inner = sizes.element, sizes.hidden, sizes.intermediate
    query_width = sizes.num_heads * sizes.head_dim
    qkv_width = query_width + 2 * sizes.num_kv_heads * sizes.head_dim
    return [
        *fused_specs(element, hidden, qkv_width, arch, norm=True),
        *fused_specs(element, hidden, inner, arch, norm=True, gated=True),
        *fused_specs(element, query_width, hidden, arch, add=True),
        *fused_specs(element, inner, hidden, arch, add=True),
    ]
