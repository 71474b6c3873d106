"""How the inputs of adapters are cut, and that every cut has its kernels."""

from __future__ import annotations

import math

import pytest

from pegainfer_core.kernels import catalog

WIDTHS = (128, 200, 1024, 2560, 4096, 9728, 25_600)
TOKENS = (1, 64, 65, 2048, 2049, 24_576)
RANKS = (16, 32, 64, 256)
BLOCK = 128


@pytest.mark.parametrize("width", WIDTHS)
def test_shares_hold_all_inputs(width: int) -> None:
    for num_tokens in TOKENS:
        for rank in RANKS:
            splits = catalog.lora_splits(width, num_tokens, rank)
            inputs = math.ceil(width / splits)
            assert splits * math.ceil(inputs / BLOCK) * BLOCK >= width


def test_few_tokens_are_cut_most_and_thousands_not_at_all() -> None:
    few, some, many = (catalog.lora_splits(9728, tokens, 16) for tokens in (1, 65, 2049))
    assert few > some > many == 1
    assert catalog.lora_splits(9728, 1, 64) == some


@pytest.mark.parametrize("width", WIDTHS)
def test_all_kernels_are_named(width: int) -> None:
    specs = catalog.lora_specs("bf16", [(width, (640, 128))], width, 90)
    for num_tokens in TOKENS:
        for rank in RANKS:
            splits = catalog.lora_splits(width, num_tokens, rank)
            assert catalog.lora_shrink("bf16", width, splits, rank, overlaps=True) in specs
            assert catalog.lora_expand("bf16", splits, (640, 128), rank, overlaps=True) in specs
