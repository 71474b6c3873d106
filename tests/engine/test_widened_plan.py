"""Larger prefill steps, where a family wants them and memory is no concern."""

from __future__ import annotations

import pytest

from pegainfer_core.backend import NumpyBackend
from pegainfer_core.contract import ServePlan
from pegainfer_core.engine import widened_plan

PLAN = ServePlan(
    max_model_len=4096,
    vocab_size=300,
    backend="cuda",
    page_tokens=16,
    num_pages=None,
    max_num_seqs=8,
    max_prefill_tokens=8192,
)


class Device(NumpyBackend):
    """With memory of its own."""

    def __init__(self, free_gib: int | None) -> None:
        super().__init__()
        self._free_gib = free_gib

    def free_bytes(self) -> int | None:
        return None if self._free_gib is None else self._free_gib << 30


@pytest.mark.parametrize(
    ("free_gib", "asked", "expected"),
    [
        (120, None, 24_576),
        (64, None, 24_576),
        (63, None, 8192),
        (0, None, 8192),
        (120, 8192, 8192),
        (None, None, 8192),
    ],
    ids=["much", "enough", "too little", "nothing", "asked for", "the host's"],
)
def test_by_what_is_free_and_what_was_asked(
    free_gib: int | None, asked: int | None, expected: int
) -> None:
    plan = widened_plan(PLAN, asked, Device(free_gib), 24_576)
    assert plan.max_prefill_tokens == expected
    assert plan.max_num_seqs == PLAN.max_num_seqs


def test_the_host_has_no_memory_of_its_own() -> None:
    assert NumpyBackend().free_bytes() is None
