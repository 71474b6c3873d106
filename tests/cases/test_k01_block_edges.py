"""K01: prompts that end at, just before or just behind a block border.

Seen elsewhere: a prompt that is wholly in the cache leaves nothing to compute and crashes; decode
takes its next block one token too soon or too late. Both happen at exact multiples only.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases.answers import assert_same, greedy
from tests.cases.conftest import StartEngine
from tests.cases.step_gate import StepGate

#: L as multiples of the block and tokens beside them.
LENGTHS = ((0, 1), (1, -1), (1, 0), (1, 1), (2, -1), (2, 0), (2, 1), (3, 0))


def assert_pages_as_needed(gate: StepGate, block: int) -> None:
    """A row has the block of each token that it writes, and none for a later token."""
    for rows in gate.steps:
        for row in rows:
            assert len(row.page_ids) == -(-(row.start + row.num_tokens) // block)
            assert len(set(row.page_ids)) == len(row.page_ids)
            assert 0 not in row.page_ids, "the padding page"


@pytest.mark.parametrize(
    ("block", "blocks", "beside"),
    [*((16, *length) for length in LENGTHS), (32, 1, 0)],
)
def test_cold_warm_longer_and_twice(
    block: int, blocks: int, beside: int, f3: Path, start: StartEngine, gate: StepGate
) -> None:
    length, max_tokens = blocks * block + beside, 2 * block + 2
    params, fewer = greedy(max_tokens, logprobs=2), greedy(max_tokens - 5, logprobs=2)
    # No cache, one request at a time: everything is computed.
    plain = start(f3, kv_page_size=block, prefix_cache=False)
    prompt = plain.prompt(length)
    expected = plain.generate(prompt, params)
    longer_prompt = [*prompt, *expected.token_ids[:5]]
    expected_longer = plain.generate(longer_prompt, fewer)
    assert expected_longer.token_ids == expected.token_ids[5:]
    in_cache = (length - 1) // block * block

    # The last token of an answer is never an input; the context limit counts it all the same.
    for num_pages in (None, -(-(length + max_tokens) // block)):
        session = start(f3, kv_page_size=block, num_kv_pages=num_pages)
        gate.steps.clear()
        for cached in (0, in_cache):
            answer = session.generate(prompt, params)
            assert answer.cached_tokens == cached
            assert_same(answer, expected)
        longer = session.generate(longer_prompt, fewer)
        assert longer.cached_tokens == (length + 5 - 1) // block * block
        assert_same(longer, expected_longer)
        session.handle.reset_prefix_cache()
        with gate.together(session):
            twins = [session.submit(prompt, params) for _ in range(2)]
        answers = [session.answer(request_id) for request_id in twins]
        first, second = (gate.first_step(request_id) for request_id in twins)
        assert num_pages or first == second
        # Where there is room for one, the other finds what that one computed.
        cached_by_both = [answer.cached_tokens for answer in answers]
        assert cached_by_both == [0, 0 if first == second else in_cache]
        for answer in answers:
            assert_same(answer, expected)
        assert session.settle().kv_used_pages == 0
        assert_pages_as_needed(gate, block)


@pytest.mark.parametrize(("blocks", "beside"), LENGTHS)
def test_the_smallest_pool_of_all(blocks: int, beside: int, f3: Path, start: StartEngine) -> None:
    """A request for exactly as many tokens as the pool holds runs; one more token is refused."""
    length = blocks * 16 + beside
    session = start(f3, num_kv_pages=blocks + 3)
    room = (blocks + 3) * 16 - length
    prompt = session.prompt(length)
    for _ in range(2):
        assert len(session.generate(prompt, greedy(room)).token_ids) == room
    refused = session.answer(session.submit(prompt, greedy(room + 1)))
    assert str((blocks + 3) * 16) in str(refused.rejected)
    assert session.settle().kv_used_pages == 0


@pytest.mark.parametrize("blocks", [1, 3])
def test_one_new_token_behind_a_cached_prefix(blocks: int, f3: Path, start: StartEngine) -> None:
    """The least there can be to compute, again and again in the same slot and on the same page."""
    plain, session = start(f3, prefix_cache=False), start(f3)
    prefix, tail = session.prompt(blocks * 16), session.prompt(9, seed=3)
    params = greedy(4, logprobs=2)
    endings = [[last] for last in (7, 8, 900, 8, 7)]
    # Also longer and shorter ones in turn, so that what was there before ends elsewhere.
    endings += [[*tail[:count], count] for count in (9, 1, 5, 2)]
    for number, ending in enumerate(endings):
        answer = session.generate([*prefix, *ending], params)
        assert answer.cached_tokens == (blocks * 16 if number else 0)
        assert_same(answer, plain.generate([*prefix, *ending], params))
