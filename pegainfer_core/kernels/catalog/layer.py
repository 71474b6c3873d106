"""The products between two attentions of a decode step in one launch.

Which variant some rows take, and how it shares a block's registers and shared memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from pegainfer_core.kernels.spec import KernelSpec

if TYPE_CHECKING:
    from pegainfer_core.kernels.arch import Arch

LAYER_ROWS: Final = (8, 16, 32)
"""Rows that variants have room for."""

MAX_LAYER_ROWS: Final = 0
"""Steps of at most so many rows take it; none until it was measured in whole steps."""

_ARCH: Final = 90
"""From here on blocks form clusters, which write to each other's shared memory."""
_ARCHS: Final = (90, 100)
"""Those whose multiprocessors have the shared memory for two blocks of it."""
_WARPS: Final = 8
_CHUNK: Final = 32
_GROUP: Final = 8
_SPLITS: Final = (4, 8)
_RESIDENT: Final = 2
"""Blocks of a multiprocessor: room for the next kernel's, whose weights arrive meanwhile."""
_SHARED_BYTES: Final = 113 << 10
_REGISTERS_OF_ROWS: Final = 80
"""Registers of a thread that hold its part of the rows; more would spill."""


class LayerWidths(msgspec.Struct, frozen=True, kw_only=True):
    """Widths of the products of one launch, which has those that are asked for.

    Attributes:
        hidden: Of the residual stream.
        query: Of what the output projection takes, if there is one.
        inner: Of the MLP, if there is some of it.
        qkv: Of what the QKV product gives, if there is one.
        gate_up: Whether the MLP's first half is there.
        down: Whether its second half is.
    """

    hidden: int
    query: int = 0
    inner: int = 0
    qkv: int = 0
    gate_up: bool = False
    down: bool = False

    @property
    def products(self) -> int:
        """As the source counts them."""
        return bool(self.query) + 2 * self.gate_up + 4 * self.down + 8 * bool(self.qkv)


def layer_rows(num_rows: int) -> int:
    """Rows that the variant for so many has room for; 0 when they are too many."""
    return next((rows for rows in LAYER_ROWS if rows >= num_rows), 0)


def takes_layer(widths: LayerWidths, num_rows: int, arch: Arch) -> bool:
    """Whether the products of some rows fit our own kernel."""
    rows = layer_rows(num_rows)
    return rows > 0 and arch in _ARCHS and layer_split(widths, rows) > 0


def layer_products(widths: LayerWidths, num_rows: int, arch: Arch, **changes: int) -> KernelSpec:
    """The products of one launch; see the source for the constants."""
    rows = layer_rows(num_rows)
    constants = {
        "QUERY": widths.query,
        "HIDDEN": widths.hidden,
        "INNER": widths.inner,
        "QKV": widths.qkv,
        "PRODUCTS": widths.products,
        "WARPS": _WARPS,
        "TILES": max(rows // 16, 1),
        "HALF": int(rows == LAYER_ROWS[0]),
        "SPLIT": layer_split(widths, rows),
        "BATCH": 4 if rows == LAYER_ROWS[0] else 2,
        "BUFFERS": 2 if rows <= 16 else 1,
        "EXCHANGE": 16,
        "RESIDENT": _RESIDENT,
        **changes,
    }
    room = _SHARED_BYTES - _shared_bytes({**constants, "DEPTH": 0})
    constants.setdefault("DEPTH", room // (_WARPS * 512))
    return KernelSpec(
        module="layer.cu",
        function="layer_products",
        arguments=(*("*bf16:16",) * 10, "*i32", "i32", "fp32", "fp32"),
        constants=tuple(constants.items()),
        num_warps=_WARPS,
        overlaps=True,
        shared_bytes=_shared_bytes(constants),
    )


def layer_split(widths: LayerWidths, rows: int) -> int:
    """Blocks that share k, so that each has room for its part of the rows; 0 if none has."""
    inputs = [widths.hidden, widths.query, widths.inner]
    outputs = [widths.hidden, widths.inner, widths.qkv]
    tiles = max(rows // 16, 1)
    for split in _SPLITS:
        a_warp = -(-max(inputs) // (_CHUNK * split * _WARPS))
        divides = not any(width % (_CHUNK * split) for width in inputs)
        if (
            divides
            and not any(width % _GROUP for width in outputs)
            and a_warp * 8 * tiles <= _REGISTERS_OF_ROWS
        ):
            return split
    return 0


def _shared_bytes(c: dict[str, int]) -> int:
    """As the source lays it out."""
    pairs_bytes = 8 * c["TILES"] * (32 if c["HALF"] else 64)
    parts = c["BUFFERS"] * c["BATCH"] * _WARPS * pairs_bytes
    received = 2 * c["EXCHANGE"] * pairs_bytes
    scales = 2 * (2 * c["HIDDEN"] // c["SPLIT"])
    squares = 4 * 16 * c["TILES"] * (_WARPS + c["SPLIT"])
    runs = _WARPS * 4 * 32
    return c["DEPTH"] * _WARPS * 512 + parts + received + scales + runs + squares
