"""K10: rows that fill up a step of a hybrid model touch no recurrent state and no answer.

Seen elsewhere: padding rows write to a real slot (index -1 or 0), or read poison. The NumPy backend
fills up nothing by itself, so a backend here does it for it; `tests/gpu` holds recorded steps to
the same.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from pegainfer_core.backend import NumpyBackend, StepMetadata
from pegainfer_core.backend.cuda.step_shape import decode_sizes
from pegainfer_core.kv import PADDING_PAGE
from plugins.pegainfer_qwen35.tests.stepper import Stepper
from tests.hf import cases

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from pegainfer_core.backend.numpy.numpy_batch import NumpyBatch

CASE = "qwen35_ratio3"
PROMPT_TOKENS = 20
NUM_TOKENS = 5
MOST = 9
MAX_ROWS = 12
#: Sizes that steps are filled up to and others, smaller and larger ones in turn.
SIZES = (1, 2, 3, 5, 9, 3, 8)


class PaddingBackend(NumpyBackend):
    """Fills steps of decoding rows up to the sizes that are recorded on a device."""

    num_padded = 0

    def upload(self, metadata: StepMetadata) -> NumpyBatch:
        count = metadata.num_rows
        if not 0 < metadata.num_decode == count:
            return super().upload(metadata)
        size = next(size for size in decode_sizes(MAX_ROWS) if size >= count)
        padded = StepMetadata(
            len(metadata.token_ids), MAX_ROWS, len(metadata.pages), metadata.page_tokens
        )
        bounds = metadata.page_starts[: count + 1].tolist()
        padded.add_decode_rows(
            metadata.token_ids[:count].tolist(),
            metadata.positions[:count].tolist(),
            [metadata.pages[i:j] for i, j in itertools.pairwise(bounds)],
            metadata.row_slots[:count].tolist(),
        )
        for _ in range(size - count):
            padded.add_row([0], 0, [PADDING_PAGE], samples=False)
        padded.finish(size)
        self.num_padded += size - count
        return super().upload(padded)


def test_padding_is_without_effect(tmp_path: Path) -> None:
    folder = cases.build(CASE, tmp_path / CASE)
    pages_each = -(-(PROMPT_TOKENS + NUM_TOKENS) // 16)
    backend = PaddingBackend()
    # The largest batch uses every page.
    filled, plain = (
        Stepper(
            folder,
            backend=made,
            num_kv_pages=MOST * pages_each,
            max_num_seqs=MAX_ROWS,
            max_model_len=pages_each * 16,
            prefix_cache=False,
        )
        for made in (backend, NumpyBackend())
    )
    assert PADDING_PAGE not in filled._free
    prompts = [cases.prompt(CASE, PROMPT_TOKENS, i).tolist() for i in range(MOST)]
    expected = {size: plain.generate(prompts[:size], NUM_TOKENS) for size in set(SIZES)}
    for size in SIZES:
        spoil(filled)
        live = set(filled._slots[-size:])
        assert filled.generate(prompts[:size], NUM_TOKENS) == expected[size]
        assert untouched(filled) == set(range(MAX_ROWS)) - live
    assert backend.num_padded > 0


def spoil(stepper: Stepper) -> None:
    """The padding page and all states: what a row reads that it did not write is no number."""
    pages = stepper.kv.pages.storage
    assert isinstance(pages, np.ndarray)
    pages[PADDING_PAGE].view(np.uint8).fill(0xFF)
    for states in parts(stepper):
        states.view(np.uint8).fill(0xFF)


def untouched(stepper: Stepper) -> set[int]:
    """Slots of requests that hold nothing but what they were spoilt with."""
    spoilt = [part[:MAX_ROWS].view(np.uint8).reshape(MAX_ROWS, -1) for part in parts(stepper)]
    return {slot for slot in range(MAX_ROWS) if all((s[slot] == 0xFF).all() for s in spoilt)}


def parts(stepper: Stepper) -> list[NDArray[np.generic]]:
    found = []
    for tensor in (stepper.states.memory, stepper.states.conv):
        assert isinstance(tensor.storage, np.ndarray)
        found.append(tensor.storage)
    return found
