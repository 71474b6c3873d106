"""Which scan of pieces a device gets, and what it asks of it."""

from __future__ import annotations

import msgspec
import pytest

from pegainfer_core.kernels import catalog

BLOCK_SHARED_BYTES = 227 << 10
STATIC_SHARED_BYTES = 1 << 10
SIZES = catalog.DeltaSizes(
    element="bf16",
    num_key_heads=16,
    num_value_heads=32,
    key_dim=128,
    value_dim=128,
    conv_taps=4,
)


@pytest.mark.parametrize(
    ("changes", "arch", "taken"),
    [
        ({}, 90, True),
        ({"value_dim": 64}, 90, True),
        ({"num_value_heads": 16}, 90, True),
        ({}, 80, False),
        ({}, 100, False),
        ({"element": "fp32"}, 90, False),
        ({"key_dim": 64}, 90, False),
        ({"value_dim": 96}, 90, False),
    ],
)
def test_memories_stay_in_registers_where_they_fit(
    changes: dict[str, object], arch: int, taken: bool
) -> None:
    sizes = msgspec.structs.replace(SIZES, **changes)
    assert catalog.takes_turned_scan(sizes, arch) == taken
    modules = {
        spec.module
        for spec in catalog.recurrent_specs(sizes, arch)
        if spec.function == "scan_pieces"
    }
    assert modules == {"scan_pieces.cu" if taken else "delta_rule"}


def test_the_scan_fits_a_multiprocessor() -> None:
    spec = catalog.turned_scan(SIZES)
    assert spec.shared_bytes <= BLOCK_SHARED_BYTES - STATIC_SHARED_BYTES
    assert dict(spec.constants) == {"VALUE_DIM": 128}
