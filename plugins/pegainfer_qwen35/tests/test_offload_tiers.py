"""Whatever a tier behind host memory has lost or spoilt, a prefix ends in a state of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pegainfer_core.contract import SamplingParams
from pegainfer_core.offload import GuardedTier, GuardPolicy, RecordLayout, lower_tier
from plugins.pegainfer_qwen35.tests.offload_harness import StatefulOffloadHarness
from tests.offload.guard_bench import eventually
from tests.offload.scripted_tier import ScriptedTier
from tests.scheduler.harness import PAGE_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Engine = Callable[..., StatefulOffloadHarness]

NUM_PAGES = 6
PROMPT = [(7 * i) % 40 for i in range(NUM_PAGES * PAGE_TOKENS + 2)]
SHORT = PROMPT[: 3 * PAGE_TOKENS + 1]
FULL = NUM_PAGES * PAGE_TOKENS
ONE = SamplingParams(max_tokens=1)
LAYOUTS = {0: RecordLayout(page_bytes=8 * PAGE_TOKENS), 1: RecordLayout(page_bytes=16)}
POLICY = GuardPolicy(call_deadline_s=20.0, max_failures=3, cool_down_s=60.0)


@pytest.fixture
def scripted() -> ScriptedTier:
    return ScriptedTier()


@pytest.fixture
def engine(scripted: ScriptedTier) -> Iterator[Engine]:
    """`engine()`: a scheduler in a new process, as it were, with the one tier behind its host."""
    made: list[StatefulOffloadHarness] = []

    def start(**options: Any) -> StatefulOffloadHarness:
        guard = GuardedTier("scripted", scripted, LAYOUTS, POLICY)
        room = {"num_usable_pages": 60, "num_snapshots": 20}
        made.append(StatefulOffloadHarness(guards=[guard], **(room | options)))
        return made[-1]

    yield start
    for harness in made:
        for future, argument in scripted.open_calls:
            if not future.done():
                future.set_result([False] * len(argument))
        harness.expect_baseline()
        harness.offload.close()


@pytest.fixture
def saved(engine: Engine, scripted: ScriptedTier) -> list[int]:
    """Another engine has filled the tier: six pages, and states behind the third and the last."""
    first = engine()
    first.run(SHORT, params=ONE)
    answer = first.run(PROMPT, params=ONE)

    def is_saved() -> bool:
        first.turn()
        first.offload.commit(())
        return len(scripted.shelf) == NUM_PAGES + 2

    eventually(is_saved)
    return answer.token_ids


def forget(scripted: ScriptedTier, group: int, index: int) -> None:
    del scripted.shelf[[key for key in scripted.shelf if key.group == group][index]]


def test_after_a_restart(saved: list[int], engine: Engine) -> None:
    second = engine()
    answer = second.run(PROMPT, params=ONE)
    assert (answer.token_ids, answer.cached_tokens) == (saved, FULL)
    tier = second.metrics.kv_offload.tiers[1]
    assert tier.hit_tokens == FULL
    assert tier.loaded_bytes == sum([NUM_PAGES, 1][g] * LAYOUTS[g].record_bytes for g in (0, 1))


@pytest.mark.parametrize(
    ("group", "index", "num_pages"), [(0, 5, 3), (0, 1, 0), (1, 1, 3), (1, 0, 6)]
)
def test_a_lost_record(
    group: int, index: int, num_pages: int,
    saved: list[int], engine: Engine, scripted: ScriptedTier,
) -> None:  # fmt: skip
    """The longest prefix that ends in a state is taken, and no page beyond."""
    forget(scripted, group, index)
    second = engine()
    answer = second.run(PROMPT, params=ONE)
    assert (answer.token_ids, answer.cached_tokens) == (saved, num_pages * PAGE_TOKENS)
    assert second.movers[0].num_loaded == num_pages


@pytest.mark.parametrize("group", [0, 1])
def test_a_damaged_record(
    group: int, saved: list[int], engine: Engine, scripted: ScriptedTier
) -> None:
    """Found, but not right: everything is computed."""
    key = [key for key in scripted.shelf if key.group == group][-1]
    content = bytearray(scripted.shelf[key])
    content[3] ^= 0x10
    scripted.shelf[key] = bytes(content)
    second = engine()
    answer = second.run(PROMPT, params=ONE)
    assert (answer.token_ids, answer.cached_tokens) == (saved, 0)
    assert second.metrics.kv_offload.num_restore_failures == 1


def test_a_state_comes_back_to_pages_that_stayed(
    saved: list[int], engine: Engine, scripted: ScriptedTier
) -> None:
    second = engine(num_snapshots=2)
    second.run(PROMPT, params=ONE)
    for first in range(41, 46):
        second.run([first, *PROMPT[:9]], params=ONE)
    second.pools[1].clear()
    num_pages = second.movers[0].num_loaded
    answer = second.run(PROMPT, params=ONE)
    assert (answer.token_ids, answer.cached_tokens) == (saved, FULL)
    assert second.movers[0].num_loaded == num_pages


@pytest.mark.parametrize("when", range(6))
def test_abort_while_it_is_asked(
    when: int, saved: list[int], engine: Engine, scripted: ScriptedTier
) -> None:
    second = engine()
    request = second.submit(PROMPT, params=ONE)
    for _ in range(when):
        second.scheduler.step(second.ledger)
        second.turn()
    second.abort(request)
    second.check_pages()
    second.drain()
    assert second.run(PROMPT, params=ONE).token_ids == saved


def test_a_tier_that_never_answers(
    saved: list[int], engine: Engine, scripted: ScriptedTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lower_tier, "_LOOKUP_S", 0.02)
    scripted.script["contains"] = scripted.hang
    second = engine()
    answer = second.run(PROMPT, params=ONE)
    assert (answer.token_ids, answer.cached_tokens) == (saved, 0)
