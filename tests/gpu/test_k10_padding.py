"""K10: rows that fill up a recorded step are without effect, whatever lies in their page.

Seen elsewhere: padding rows write to a real page (index -1 or 0), or read poison that a recording
left behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pegainfer_core.backend.cuda.arrays import address
from pegainfer_core.kv import PADDING_PAGE
from pegainfer_core.testing.tiny import tiny_adapter
from plugins.pegainfer_qwen3.tests.stepper import Stepper
from tests.hf import cases

if TYPE_CHECKING:
    from pathlib import Path

    from pegainfer_core.backend.cuda import CudaBackend

pytestmark = pytest.mark.gpu

PROMPT_TOKENS = 20
NUM_TOKENS = 24
MOST = 9
#: Every size between the recorded ones, then smaller and larger ones in turn.
SIZES = (*range(1, MOST + 1), 8, 3, 8, 1, 9, 5)


@pytest.mark.parametrize("adapted", [False, True])
@pytest.mark.parametrize("case", ["gqa5", "bf16"])
def test_padding_is_without_effect(case: str, adapted: bool, tmp_path: Path) -> None:
    """With `adapted`, most rows have one of two adapters."""
    from pegainfer_core.backend.cuda import CudaBackend

    # Their own, because one that was told of adapters stays so.
    cuda, eager = CudaBackend(), CudaBackend(record=False)
    folder = cases.build(case, tmp_path / case)
    # The largest batch uses every page, the first and the last included.
    pages_each = -(-(PROMPT_TOKENS + NUM_TOKENS) // 16)
    seeds = {"x": 1, "y": 2} if adapted else {}
    lora = [f"{name}={tiny_adapter(tmp_path / name, folder, seed=seeds[name])}" for name in seeds]
    recorded, plain = (
        Stepper(
            folder,
            backend=backend,
            num_kv_pages=MOST * pages_each,
            max_num_seqs=16,
            max_model_len=pages_each * 16,
            lora=lora,
        )
        for backend in (cuda, eager)
    )
    for stepper in (recorded, plain):
        if stepper.adapters is not None:
            stepper.adapters.load_at_start(stepper.context.options)
    slots = [i % 3 - 1 if adapted else -1 for i in range(1, MOST + 1)]
    prompts = [cases.prompt(case, PROMPT_TOKENS, i).tolist() for i in range(MOST)]
    expected = {
        size: plain.generate(prompts[:size], NUM_TOKENS, adapter_slots=slots[:size])
        for size in set(SIZES)
    }
    assert PADDING_PAGE not in recorded._free
    for size in SIZES:
        spoil_the_padding_page(recorded, cuda)
        found = recorded.generate(prompts[:size], NUM_TOKENS, adapter_slots=slots[:size])
        assert found == expected[size]


def spoil_the_padding_page(stepper: Stepper, cuda: CudaBackend) -> None:
    """All bits set is not a number in either type."""
    kv = stepper.kv
    cuda.device.fill(address(kv.pages), 0xFF, kv.layout.page_bytes)
    cuda.device.synchronize()
