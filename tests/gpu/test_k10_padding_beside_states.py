"""K10: rows that fill up a recorded step of a hybrid model touch no state, no page and no answer.

Seen elsewhere: padding rows write to a real slot (index -1 or 0), or read poison that a recording
left behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from pegainfer_core.backend.cuda.arrays import address
from pegainfer_core.kv import PADDING_PAGE
from plugins.pegainfer_qwen35.tests.stepper import Stepper
from tests.hf import cases

if TYPE_CHECKING:
    from pathlib import Path

    from pegainfer_core.backend import Tensor
    from pegainfer_core.backend.cuda import CudaBackend

pytestmark = pytest.mark.gpu

PROMPT_TOKENS = 20
NUM_TOKENS = 24
MOST = 9
MAX_ROWS = 16
#: Every size between the recorded ones, then smaller and larger ones in turn.
SIZES = (*range(1, MOST + 1), 8, 3, 8, 1, 9, 5)


@pytest.mark.parametrize("case", ["qwen35_ratio3", "qwen35_bf16"])
def test_padding_is_without_effect(case: str, tmp_path: Path) -> None:
    from pegainfer_core.backend.cuda import CudaBackend

    folder = cases.build(case, tmp_path / case)
    pages_each = -(-(PROMPT_TOKENS + NUM_TOKENS) // 16)
    backend = CudaBackend()
    # The largest batch uses every page; without a prefix cache the last slot is a request's.
    recorded, plain = (
        Stepper(
            folder,
            backend=made,
            num_kv_pages=MOST * pages_each,
            max_num_seqs=MAX_ROWS,
            max_model_len=pages_each * 16,
            prefix_cache=False,
        )
        for made in (backend, CudaBackend(record=False))
    )
    assert recorded.states.memory.shape[0] == MAX_ROWS
    assert PADDING_PAGE not in recorded._free
    prompts = [cases.prompt(case, PROMPT_TOKENS, i).tolist() for i in range(MOST)]
    expected = {size: plain.generate(prompts[:size], NUM_TOKENS) for size in set(SIZES)}
    for size in SIZES:
        spoil(recorded, backend)
        live = set(recorded._slots[-size:])
        assert recorded.generate(prompts[:size], NUM_TOKENS) == expected[size]
        assert touched(recorded, backend) == live


def spoil(stepper: Stepper, backend: CudaBackend) -> None:
    """The padding page and all states; all bits set is not a number in either type."""
    kv, device = stepper.kv, backend.device
    device.fill(address(kv.pages) + PADDING_PAGE * kv.layout.page_bytes, 0xFF, kv.layout.page_bytes)
    for part in parts(stepper):
        device.fill(address(part), 0xFF, int(np.prod(part.shape)) * part.dtype.itemsize)
    device.synchronize()


def touched(stepper: Stepper, backend: CudaBackend) -> set[int]:
    """Slots that hold a number."""
    found = [~np.isnan(backend.to_host(part, MAX_ROWS)) for part in parts(stepper)]
    return {slot for slot in range(MAX_ROWS) if any(part[slot].any() for part in found)}


def parts(stepper: Stepper) -> tuple[Tensor, Tensor]:
    return stepper.states.memory, stepper.states.conv
