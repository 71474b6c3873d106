"""Which algorithm was fastest for products on this kind of GPU, remembered in a file.

cuBLASLt's first proposal is up to 10 % slower than its best. Knows no handles: algorithms are
bytes.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final

import msgspec

from pegainfer_core.backend.cuda.product_shape import ProductShape
from pegainfer_core.backend.dtype import DType

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pegainfer_core.backend.decoder import AttentionShape
    from pegainfer_core.kernels import DecoderSizes
    from pegainfer_core.kernels.catalog import DeltaSizes

logger = logging.getLogger(__name__)

TUNED_ROWS: Final = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
"""Sizes that are timed; others take the algorithm of the next larger one."""

_Algorithms = dict[str, bytes]


class TunedProducts:
    """Algorithms by shape, of one kind of GPU and one version of the library.

    Args:
        path: The file; need not exist. A damaged one counts as none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._algorithms: _Algorithms = {}
        try:
            self._algorithms = msgspec.json.decode(path.read_bytes(), type=_Algorithms)
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError) as error:
            logger.warning("%s: is ignored and measured anew (%s)", path, error)

    def get(self, shape: ProductShape) -> bytes | None:
        """The algorithm for a shape, None where none was measured."""
        return self._algorithms.get(_key(shape, tuned_rows(shape.rows)))

    def missing(self, shapes: list[ProductShape]) -> list[ProductShape]:
        """Those of the given shapes, of `TUNED_ROWS` rows each, that were not measured."""
        return [shape for shape in shapes if _key(shape, shape.rows) not in self._algorithms]

    def store(self, found: Mapping[ProductShape, bytes]) -> None:
        """Keep measurements; a file that cannot be written costs their repetition, no more."""
        self._algorithms |= {_key(shape, shape.rows): code for shape, code in found.items()}
        partial = self._path.with_suffix(f".{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(msgspec.json.encode(self._algorithms))
            partial.replace(self._path)
        except OSError as error:
            logger.warning("%s: cannot be written (%s)", self._path, error)


def decoder_products(shape: AttentionShape, hidden: int, intermediate: int) -> list[ProductShape]:
    """The bfloat16 products of a decoder's layers, of all sizes that are measured."""
    sides = [
        (shape.qkv_width, hidden, False),
        (hidden, shape.query_width, True),
        (2 * intermediate, hidden, False),
        (hidden, intermediate, True),
    ]
    return _of_all_sizes(sides)


def hybrid_products(decoder: DecoderSizes, delta: DeltaSizes) -> list[ProductShape]:
    """Those of a decoder with delta-rule layers and gated attention that no plain one has."""
    query_width = decoder.num_heads * decoder.head_dim
    kv_width = decoder.num_kv_heads * decoder.head_dim
    sides = [
        (2 * query_width + 2 * kv_width, decoder.hidden, False),
        (delta.projected_width, decoder.hidden, False),
        (decoder.hidden, delta.value_width, True),
    ]
    return _of_all_sizes(sides)


def _of_all_sizes(sides: list[tuple[int, int, bool]]) -> list[ProductShape]:
    kind = DType.BFLOAT16
    return [ProductShape(rows, n, k, kind, kind, add) for rows in TUNED_ROWS for n, k, add in sides]


def tuned_rows(rows: int) -> int:
    """The measured size that stands for a number of rows."""
    return next((size for size in TUNED_ROWS if size >= rows), TUNED_ROWS[-1])


def _key(shape: ProductShape, rows: int) -> str:
    kinds = f"{shape.operands.value}-{shape.result.value}"
    return f"{rows}x{shape.n}x{shape.k}-{kinds}{'-add' if shape.accumulate else ''}"
