"""Shorter reports on engines: page sums, interrupted turns, streamed answers, rules beside none.

The sums: idle blocks that were shared are counted twice, and a check of free + used + cached
against the pool then ends the server. Interrupted turns: their usable prefix is thrown away.
Streamed answers: they never enter the prefix cache. Rules: one request with a logits processor
breaks batch mates that have none. Ids: two live requests with one id of the client's choice.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from pegainfer_qwen3.scheduler import Qwen3Scheduler

from pegainfer_core.contract import Finished, FinishReason, Tokens
from pegainfer_core.engine import EngineClient, Ledger
from pegainfer_core.kv import KvManager
from pegainfer_core.plugin import PluginHost, prepare_launch
from pegainfer_core.testing.tiny import tiny_qwen3
from tests.cases.answers import assert_same, greedy
from tests.cases.conftest import F3, Serve, StartEngine
from tests.cases.http_server import COMPLETIONS
from tests.cases.step_gate import StepGate
from tests.hf import golden

B = 16


class PageAudit:
    """Counts pages after every step from what live requests hold, not from the pool's own sums."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.num_audits = 0
        self.most_shared = 0
        step = Qwen3Scheduler.step

        def audited(scheduler: Qwen3Scheduler, ledger: Ledger) -> None:
            step(scheduler, ledger)
            self._audit(scheduler)

        monkeypatch.setattr(Qwen3Scheduler, "step", audited)

    def _audit(self, scheduler: Qwen3Scheduler) -> None:
        kv: KvManager = scheduler._kv
        pool = kv.pool
        held = [sequence.page_ids for sequence in scheduler._requests.running]
        used = {page for page_ids in held for page in page_ids}
        cached = {page for page in range(1, pool.num_total + 1) if pool.is_cached(page)}
        free = set(pool._free)
        assert len(free) == pool.num_free, "a page is free twice"
        assert not used & cached and not used & free and not cached & free
        assert len(used) == pool.num_used == scheduler.metrics().kv_used_pages
        assert len(cached) == pool.num_cached == scheduler.metrics().kv_cached_pages
        assert len(free) + len(used) + len(cached) == pool.num_total
        assert 0 <= kv.num_available <= pool.num_free + pool.num_cached
        self.num_audits += 1
        self.most_shared = max(self.most_shared, sum(map(len, held)) - len(used))


@pytest.mark.usefixtures("crowded")
def test_free_and_used_and_cached_are_the_pool(
    f3: Path, start: StartEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shared prefixes, twins, aborts, preemptions and resets in a pool that is often full."""
    audit = PageAudit(monkeypatch)
    session = start(f3, num_kv_pages=30, max_prefill_tokens=40, max_num_seqs=8)
    chance = random.Random(5)
    prefixes = [session.prompt(count * B, seed=count) for count in (1, 3, 5)]
    live: list[int] = []
    for turn in range(70):
        prompt = [*chance.choice(prefixes), *session.prompt(chance.randrange(1, 40), seed=turn % 7)]
        salt = chance.choice(["", "", "s"])
        live.append(session.submit(prompt, greedy(chance.randrange(1, 60)), cache_salt=salt))
        if chance.random() < 0.3:
            session.handle.abort(chance.choice(live))
        if chance.random() < 0.05:
            session.handle.reset_prefix_cache()
        if turn % 10 == 9:
            session.answer(live[-1])
    for request_id in live:
        session.answer(request_id)
    metrics = session.settle()
    assert audit.num_audits > 200
    assert audit.most_shared >= 10
    assert metrics.num_preemptions and metrics.num_evicted_pages and metrics.num_aborted
    session.handle.reset_prefix_cache()
    session.generate([1], greedy(1))
    assert session.settle().kv_cached_pages == 0


def test_pages_of_idle_twins_are_counted_once(
    f3: Path, start: StartEngine, gate: StepGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four requests share 3 pages and have one each; idle, the 3 stay, and one of the four."""
    PageAudit(monkeypatch)
    session = start(f3)
    prompt = session.prompt(3 * B + 1)
    session.generate(prompt, greedy(1))
    assert session.settle().kv_cached_pages == 3
    with gate.together(session):
        live = [session.submit(prompt, greedy(B)) for _ in range(4)]
    for request_id in live:
        assert session.answer(request_id).cached_tokens == 3 * B
    pages = {page for request_id in live for page in gate.rows_of(request_id)[-1].page_ids}
    assert len(pages) == 3 + 4
    assert session.settle().kv_cached_pages == 4


@pytest.mark.parametrize("num_tokens", [0, 1, 15, 16, 17, 40])
def test_an_interrupted_turn_keeps_its_finished_blocks(
    num_tokens: int, f3: Path, start: StartEngine, gate: StepGate
) -> None:
    """The client goes away; when it comes back, prompt and answer up to there are still known."""
    plain, session = start(f3, prefix_cache=False), start(f3)
    prompt = session.prompt(2 * B)
    gate.steps.clear()
    gate.close()
    turn = session.submit(prompt, greedy(60))
    gate.wait()
    for _ in range(num_tokens - 1):
        gate.step()
    session.handle.abort(turn)
    gate.open()
    answer = session.answer(turn)
    assert answer.finished.reason is FinishReason.ABORT
    said = answer.token_ids
    assert len(said) == max(num_tokens, 1)
    again = [*prompt, *said, 7, 8, 9]
    following = session.generate(again, greedy(8, logprobs=1))
    num_computed = len(prompt) + len(said) - 1
    assert following.cached_tokens == num_computed // B * B
    assert_same(following, plain.generate(again, greedy(8, logprobs=1)))


@pytest.mark.parametrize("stream", [False, True])
def test_answers_enter_the_prefix_cache(
    stream: bool, serve: Serve, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whether they were streamed or not: the next turn finds prompt and answer."""
    folder = tiny_qwen3(tmp_path_factory.mktemp("answers") / "m", vocab=1024)
    server = serve(folder)
    fields = {"max_tokens": 2 * B, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    prompt = [(3 * i + 1 + stream) % 250 for i in range(B + 5)]
    if stream:
        events = server.events(COMPLETIONS, prompt=prompt, **fields)
        said = [i for event in events for c in event["choices"] for i in c["token_ids"]]
    else:
        said = server.whole(COMPLETIONS, prompt=prompt, **fields)["choices"][0]["token_ids"]
    assert len(said) == 2 * B
    usage = server.whole(COMPLETIONS, prompt=[*prompt, *said, 9], **fields)["usage"]
    # The last token of an answer was never computed.
    num_computed = len(prompt) + len(said) - 1
    assert usage["prompt_tokens_details"]["cached_tokens"] == num_computed // B * B


#: One request of each kind of rule.
RULES = {
    "bias": greedy(24, logit_bias={11: 100.0}),
    "allowed": greedy(24, allowed_token_ids=[21, 22, 23]),
    "bad": greedy(24, bad_token_sequences=[[31], [32, 33]]),
    "min_tokens": greedy(24, stop_token_ids=[202, 7, 8], min_tokens=20),
    "penalties": greedy(24, repetition_penalty=1.7, presence_penalty=1.0),
}


@pytest.mark.usefixtures("crowded")
@pytest.mark.parametrize("num_kv_pages", [None, 12])
def test_rules_of_some_do_not_touch_the_others(
    num_kv_pages: int | None, f3: Path, start: StartEngine, gate: StepGate
) -> None:
    """Rows keep their own rules while the batch grows and shrinks, and through preemption."""
    plain = start(f3, prefix_cache=False)
    session = start(f3, num_kv_pages=num_kv_pages)
    prompt = session.prompt(20)
    bare = greedy(40, logprobs=2)
    alone = plain.generate(prompt, bare)
    expected = {name: plain.generate(prompt, params).token_ids for name, params in RULES.items()}
    assert set(expected["bias"]) == {11} and set(expected["allowed"]) <= {21, 22, 23}
    with gate.together(session):
        live = [session.submit(prompt, bare)]
        ruled = {name: session.submit(prompt, params) for name, params in RULES.items()}
        live.append(session.submit(prompt, bare))
    session.wait_tokens(live[0], 5)
    late = {name: session.submit(prompt, params) for name, params in RULES.items()}
    live.append(session.submit(prompt, bare))
    for request_id in live:
        assert_same(session.answer(request_id), alone)
    for batch in (ruled, late):
        found = {name: session.answer(request_id).token_ids for name, request_id in batch.items()}
        assert found == expected
    if num_kv_pages is not None:
        assert session.settle().num_preemptions > 0


def test_two_live_requests_with_one_client_id(f3: Path, qwen3_host: PluginHost) -> None:
    """The engine knows them apart: each gets its own answer, and aborting one leaves the other."""
    expected = [golden.load(F3).prompts[count] for count in (5, 37)]
    launch = prepare_launch(qwen3_host, f3)
    handle = launch.family.launch(launch.context, launch.plan)

    async def main() -> None:
        client = EngineClient(handle)
        streams = [
            client.submit(one.prompt.tolist(), greedy(64), external_id="mine") for one in expected
        ]
        gone = client.submit([5, 6], greedy(1000), external_id="mine")
        assert len({stream.request_id for stream in (*streams, gone)}) == 3
        await gone.next_events()
        gone.abort()
        gone.abort()
        async for event in gone:
            last = event
        assert isinstance(last, Finished) and last.reason is FinishReason.ABORT
        for stream, one in zip(streams, expected, strict=True):
            token_ids = [i async for e in stream if isinstance(e, Tokens) for i in e.token_ids]
            assert token_ids == one.greedy.tolist()
        assert client.num_open == 0
        await client.close()

    asyncio.run(main())
