"""Which kernels `pegainfer kernels build` offers for released sizes. Builds none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pegainfer_core.cli.kernels_command import released_specs
from pegainfer_core.kernels import ARCHITECTURES, DecoderSizes, catalog, decoder_specs

if TYPE_CHECKING:
    from pegainfer_core.kernels import Arch

QWEN3_4B = DecoderSizes(
    element="bf16",
    hidden=2560,
    intermediate=9728,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    page_tokens=16,
)
QWEN35_4B = DecoderSizes(
    element="bf16",
    hidden=2560,
    intermediate=9216,
    num_heads=16,
    num_kv_heads=4,
    head_dim=256,
    page_tokens=16,
)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_both_families_are_offered(arch: Arch) -> None:
    specs = released_specs(arch)
    assert len(specs) == len(set(specs))
    assert set(decoder_specs(QWEN3_4B, arch)) < set(specs)
    sites = ((2560, (4096, 1024, 1024)), (4096, (2560,)), (2560, (9728, 9728)), (9728, (2560,)))
    assert set(catalog.lora_specs("bf16", sites, 2560, arch)) < set(specs)
    for value_heads in (16, 32, 48):  # 0.8B and 2B, 4B and 9B, 27B
        delta = catalog.DeltaSizes(
            element="bf16",
            num_key_heads=16,
            num_value_heads=value_heads,
            key_dim=128,
            value_dim=128,
            conv_taps=4,
        )
        wanted = decoder_specs(QWEN35_4B, arch) + catalog.hybrid_specs(QWEN35_4B, delta, 64, arch)
        assert set(wanted) < set(specs)
    for vocab_size in (151936, 248320):
        assert set(catalog.choice_specs(vocab_size, vocab_size)) < set(specs)
