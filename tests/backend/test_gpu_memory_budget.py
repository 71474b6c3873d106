"""Weights and KV pages on a GPU: what fits, and errors that name the numbers and the remedy."""

from __future__ import annotations

import pytest

from pegainfer_core.backend.cuda.memory_budget import (
    KEPT_FREE_BYTES,
    GpuMemory,
    pages_within,
    require_room_for_pages,
    require_room_for_weights,
)
from pegainfer_core.weights import ConfigError

GIB = 2**30
PAGE = 2**21


def memory(free_gib: float, foreign_gib: float = 0.5) -> GpuMemory:
    return GpuMemory("GPU 1 (Test)", int(free_gib * GIB), 80 * GIB, int(foreign_gib * GIB))


def test_pages_fill_the_share_that_may_be_used() -> None:
    pages = pages_within(memory(60), PAGE, 0.9)
    own = 19.5 * GIB + (pages + 1) * PAGE
    assert own <= 0.9 * 80 * GIB < own + PAGE
    assert pages_within(memory(60), PAGE, 1.0) == (60 * GIB - KEPT_FREE_BYTES) // PAGE - 1


@pytest.mark.parametrize(
    ("utilization", "kv_gib"), [(0.9, 54 - 0.5), (0.6, 46), (0.3, 22), (0.05, 2)]
)
def test_a_share_is_of_all_memory_whoever_holds_the_rest(utilization: float, kv_gib: float) -> None:
    """Case O03c: others hold 30 %; this engine 2 GiB."""
    pages = pages_within(memory(54, foreign_gib=24), PAGE, utilization)
    assert pages + 1 == int(kv_gib * GIB) // PAGE


@pytest.mark.parametrize("moved_gib", [-4, 4])
def test_what_others_take_or_free_meanwhile_moves_pages_by_no_more(moved_gib: float) -> None:
    """Case O03d, as arithmetic: 5 % of the GPU, after this engine looked first."""
    quiet = pages_within(memory(54, foreign_gib=24), PAGE, 0.6)
    moved = pages_within(memory(54 - moved_gib, foreign_gib=24), PAGE, 0.6)
    assert abs(moved - quiet) * PAGE <= abs(moved_gib) * GIB
    with pytest.raises(ConfigError):
        pages_within(memory(0.1, foreign_gib=80), PAGE, 0.6)  # They took all of it.


def test_a_second_server_is_told_who_has_the_memory() -> None:
    """The first one took 0.9 of the GPU; this one's weights still fitted."""
    words = (
        r"GPU 1 \(Test\): of 80\.0 GiB, 72\.0 GiB were in use before this engine started and "
        r"7\.5 GiB are its own; --gpu-memory-utilization 0\.9 allows it 72\.0 GiB, and 0\.5 GiB "
        r"are free, of which 0\.5 GiB stay so: nothing is left for KV pages of 2\.00 MiB; "
        r"raise it, .*nvidia-smi.*--device"
    )
    with pytest.raises(ConfigError, match=words):
        pages_within(memory(0.5, foreign_gib=72), PAGE, 0.9)


def test_weights_that_do_not_fit() -> None:
    require_room_for_weights(memory(61), 61 * GIB)
    words = r"the weights need 61\.0 GiB, but only 8\.0 GiB of 80\.0 GiB are free; .*--model-path"
    with pytest.raises(ConfigError, match=words):
        require_room_for_weights(memory(8), 61 * GIB)


def test_more_pages_than_fit() -> None:
    require_room_for_pages(memory(8), 4096, PAGE)
    words = r"4097 KV pages need 8\.0 GiB, but only 8\.0 GiB are free .*lower --num-kv-pages"
    with pytest.raises(ConfigError, match=words):
        require_room_for_pages(memory(8), 4097, PAGE)
