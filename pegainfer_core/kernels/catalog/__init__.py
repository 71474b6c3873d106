"""Which kernel variants exist, and which of them a decoder of given sizes needs.

The one place that knows block sizes. Device code and builders take their specs from here.
"""

from pegainfer_core.kernels.catalog.attention import (
    DECODE_BLOCK,
    PREFILL_TILE,
    attend_items,
    attend_tiles,
    combine_items,
    decode_attention,
    prefill_parts,
    prepare_heads,
)
from pegainfer_core.kernels.catalog.choice import (
    ARGMAX_BLOCK,
    ARGMAX_PARTS,
    CHOICE_WORDS,
    argmax_parts,
    argmax_rows,
)
from pegainfer_core.kernels.catalog.decoder import decoder_specs
from pegainfer_core.kernels.catalog.embedding import embed_tokens
from pegainfer_core.kernels.catalog.products import GEMV_BLOCK, GEMV_ROWS, gemv, takes_gemv
from pegainfer_core.kernels.catalog.rows import (
    SMALL_BLOCK,
    add_rows,
    rms_norm,
    silu_mul,
    take_rows,
)
from pegainfer_core.kernels.catalog.seeded import SEEDED_BLOCK, fill_quantiles
from pegainfer_core.kernels.catalog.sizes import OVERLAP_ARCH, DecoderSizes, ElementType

__all__ = [
    "ARGMAX_BLOCK",
    "ARGMAX_PARTS",
    "CHOICE_WORDS",
    "DECODE_BLOCK",
    "GEMV_BLOCK",
    "GEMV_ROWS",
    "OVERLAP_ARCH",
    "PREFILL_TILE",
    "SEEDED_BLOCK",
    "SMALL_BLOCK",
    "DecoderSizes",
    "ElementType",
    "add_rows",
    "argmax_parts",
    "argmax_rows",
    "attend_items",
    "attend_tiles",
    "combine_items",
    "decode_attention",
    "decoder_specs",
    "embed_tokens",
    "fill_quantiles",
    "gemv",
    "prefill_parts",
    "prepare_heads",
    "rms_norm",
    "silu_mul",
    "take_rows",
    "takes_gemv",
]
