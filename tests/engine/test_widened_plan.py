"""Larger prefill steps, where a family wants them and memory is no concern."""

from __future__ import annotations

import msgspec
import pytest

from pegainfer_core.backend import NumpyBackend
from pegainfer_core.contract import CoreOptions, ServePlan
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
    """With memory of its own, all of which is free."""

    def __init__(self, gib: int) -> None:
        super().__init__()
        self._gib = gib

    def free_bytes(self, utilization: float) -> int | None:
        return int((self._gib << 30) * utilization)


@pytest.mark.parametrize(
    ("gib", "options", "expected"),
    [
        (120, {}, 24_576),
        (160, {"gpu_memory_utilization": 0.75}, 24_576),
        (160, {"gpu_memory_utilization": 0.5}, 8192),
        (24, {}, 8192),
        (120, {"max_prefill_tokens": 8192}, 8192),
        (120, {"num_kv_pages": 50_000}, 8192),
    ],
    ids=["much", "enough", "too small a share", "too little", "steps chosen", "pages chosen"],
)
def test_by_what_is_free_and_what_was_asked(
    gib: int, options: dict[str, float], expected: int
) -> None:
    given = msgspec.convert(options, CoreOptions)
    plan = widened_plan(PLAN, given, Device(gib), 24_576)
    assert plan.max_prefill_tokens == expected
    assert plan.max_num_seqs == PLAN.max_num_seqs


def test_the_host_has_no_memory_of_its_own() -> None:
    assert NumpyBackend().free_bytes(0.9) is None
    assert widened_plan(PLAN, CoreOptions(), NumpyBackend(), 24_576) is PLAN
