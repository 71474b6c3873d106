"""Metadata packing and the workspace."""

import numpy as np
import pytest

from pegainfer_core.backend import DType, NumpyBackend, StepMetadata, WorkspaceError


def test_rows_are_packed_one_after_the_other() -> None:
    metadata = StepMetadata(max_tokens=40, max_rows=3, max_pages=12, page_tokens=16)
    metadata.add_row([5], 32, [9, 8, 7], samples=True, slot=4)
    metadata.add_row([1, 2, 3], 15, [3, 6, 2], samples=False, slot=0, num_prompt_logits=2)
    metadata.add_row([4, 4], 0, [5], samples=True)
    metadata.finish(num_decode=1)
    assert (metadata.num_tokens, metadata.num_rows, metadata.num_decode) == (6, 3, 1)
    assert metadata.token_ids[:6].tolist() == [5, 1, 2, 3, 4, 4]
    assert metadata.positions[:6].tolist() == [32, 15, 16, 17, 0, 1]
    assert metadata.slots[:6].tolist() == [7 * 16, 3 * 16 + 15, 6 * 16, 6 * 16 + 1, 80, 81]
    assert metadata.row_starts[:4].tolist() == [0, 1, 4, 6]
    assert metadata.context_lens[:3].tolist() == [33, 18, 2]
    assert metadata.row_slots[:3].tolist() == [4, 0, -1]
    assert metadata.page_starts[:4].tolist() == [0, 3, 5, 6]
    assert metadata.pages[:6].tolist() == [9, 8, 7, 3, 6, 5], "pages beyond the context stay out"
    assert (metadata.num_samples, metadata.num_prompt_logits) == (2, 2)
    assert metadata.logit_tokens[: metadata.num_logits].tolist() == [0, 5, 1, 2]


def test_packed_is_one_buffer_whose_used_part_holds_everything() -> None:
    metadata = StepMetadata(max_tokens=8, max_rows=2, max_pages=9, page_tokens=16)
    metadata.add_row([1, 2], 0, [3], samples=True)
    metadata.finish(0)
    for section in (metadata.token_ids, metadata.slots, metadata.logit_tokens, metadata.pages):
        assert section.base is metadata.packed
    assert metadata.num_packed == metadata.packed.size - 9 + 1
    assert metadata.packed[metadata.num_packed - 1] == 3


def test_clear_leaves_nothing_of_the_last_step() -> None:
    metadata = StepMetadata(max_tokens=8, max_rows=2, max_pages=9, page_tokens=16)
    metadata.add_row([1, 2], 0, [3], samples=True, num_prompt_logits=1)
    metadata.finish(0)
    metadata.clear()
    metadata.add_row([7], 0, [4], samples=True)
    metadata.finish(1)
    assert (metadata.num_tokens, metadata.num_rows, metadata.num_logits) == (1, 1, 1)
    assert metadata.pages[0] == 4


def test_too_few_pages_are_an_error() -> None:
    metadata = StepMetadata(max_tokens=40, max_rows=1, max_pages=9, page_tokens=16)
    with pytest.raises(ValueError, match="17 tokens need 2 pages, but 1 given"):
        metadata.add_row([1], 16, [3], samples=True)


def test_workspace_gives_equal_names_equal_memory() -> None:
    workspace = NumpyBackend().workspace(6, 100)
    first = workspace.buffer("normed", 4, DType.FLOAT32)
    assert first.shape == (6, 4)
    assert workspace.buffer("normed", 4, DType.FLOAT32) is first
    assert workspace.buffer("logits", 9, DType.FLOAT32, rows=2).shape == (2, 9)
    for width, dtype in ((5, DType.FLOAT32), (4, DType.BFLOAT16)):
        with pytest.raises(WorkspaceError, match="'normed'"):
            workspace.buffer("normed", width, dtype)


def test_frozen_workspace_lays_out_nothing_more() -> None:
    workspace = NumpyBackend().workspace(6, 100)
    first = workspace.buffer("normed", 4, DType.FLOAT32)
    workspace.freeze()
    assert workspace.buffer("normed", 4, DType.FLOAT32) is first
    with pytest.raises(WorkspaceError, match="frozen"):
        workspace.buffer("late", 4, DType.FLOAT32)


def test_adopted_arrays_are_not_copied() -> None:
    values = np.ones((2, 2), np.float32)
    backend = NumpyBackend()
    assert backend.to_host(backend.adopt(values, DType.FLOAT32), 2).base is values
