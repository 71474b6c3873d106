"""Families that each break one rule, and one that breaks none; run by `test_teeth`.

Its name keeps it out of the default collection: most of these tests fail, which is their purpose.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import msgspec
from pegainfer_echo.plugin import CAPABILITIES, EchoFamily, EchoOptions
from pegainfer_echo.scheduler import EchoScheduler

from pegainfer_core.contract import (
    EngineHandle,
    EngineInfo,
    EngineMetrics,
    Finished,
    FinishReason,
    FrameSink,
    InvalidToken,
    LaunchContext,
    Rejected,
    ServePlan,
    StepFrame,
    TokenEvent,
    TokenLogprobs,
    Tokens,
    Unsupported,
)
from pegainfer_core.engine import BuiltEngine, LocalEngine
from pegainfer_core.testing import (
    AbortConformance,
    LifecycleConformance,
    LimitsConformance,
    RejectsConformance,
    Requirements,
    SamplingConformance,
    SchedulingConformance,
    StaticConformance,
)
from tests.testing.light_plugins import Plugin

ECHO = {name: getattr(CAPABILITIES, name) for name in CAPABILITIES.__struct_fields__}
Edit = Callable[[TokenEvent], list[TokenEvent]]


class Edited:
    """An engine that says other things than it should."""

    def __init__(self, inner: EngineHandle, edit: Edit) -> None:
        self._inner = inner
        self._edit = edit

    def connect(self, sink: FrameSink) -> None:
        def edited(frame: StepFrame) -> None:
            sink(StepFrame([e for event in frame.events for e in self._edit(event)]))

        self._inner.connect(edited)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


class EditedFamily(EchoFamily):
    def __init__(self, edit: Edit) -> None:
        self._edit = edit

    def launch(self, context: LaunchContext, plan: ServePlan) -> EngineHandle:
        return Edited(super().launch(context, plan), self._edit)


class RescheduledFamily(EchoFamily):
    """Echo with another scheduler and other capabilities."""

    def __init__(self, scheduler: type[EchoScheduler], num_pages: int = 0, **stated: bool) -> None:
        self._scheduler = scheduler
        self._num_pages = num_pages
        self._stated = stated

    def plan(self, context: LaunchContext) -> ServePlan:
        plan = super().plan(context)
        stated = msgspec.structs.replace(plan.capabilities, **self._stated)
        return msgspec.structs.replace(plan, capabilities=stated, num_pages=self._num_pages)

    def launch(self, context: LaunchContext, plan: ServePlan) -> EngineHandle:
        options = msgspec.convert(context.family_options, EchoOptions)
        info = EngineInfo(
            family="echo",
            backend=plan.backend,
            vocab_size=plan.vocab_size,
            max_model_len=plan.max_model_len,
            page_tokens=plan.page_tokens,
            num_pages=self._num_pages,
            max_num_seqs=plan.max_num_seqs,
            capabilities=plan.capabilities,
        )
        return LocalEngine(lambda: BuiltEngine(self._scheduler(options, plan), info))


class Echo:
    """What all of them share; mixed in before a level."""

    family = "echo"
    claims = ({"model_type": "echo"},)
    slow_options: ClassVar = {"echo_prefill_ms": 5.0, "echo_decode_ms": 1.0}
    requirements = Requirements(**ECHO, paged_kv=False)
    timeout_s = 10.0

    @staticmethod
    def make_model(folder: Path) -> None:
        (folder / "config.json").write_text(json.dumps({"model_type": "echo"}))


def at(name: str) -> str:
    """The entry point of a plugin below."""
    return f"{__name__}:{name}"


# --- none: shows that the families below fail for their own fault -------------------------------

sound = Plugin(RescheduledFamily(EchoScheduler))


class TestSound(
    Echo,
    RejectsConformance,
    SchedulingConformance,
    AbortConformance,
    LimitsConformance,
    LifecycleConformance,
):
    plugin = at("sound")


# --- the order of events ------------------------------------------------------------------------


def ended_twice(event: TokenEvent) -> list[TokenEvent]:
    return [event, event] if isinstance(event, Finished) else [event]


def token_after_end(event: TokenEvent) -> list[TokenEvent]:
    return [event, Tokens(event.request_id, [1])] if isinstance(event, Finished) else [event]


def wrong_usage(event: TokenEvent) -> list[TokenEvent]:
    if isinstance(event, Finished) and event.reason is FinishReason.ABORT:
        return [msgspec.structs.replace(event, completion_tokens=0)]
    return [event]


two_terminals = Plugin(EditedFamily(ended_twice))
late_token = Plugin(EditedFamily(token_after_end))
uncounted_abort = Plugin(EditedFamily(wrong_usage))


class TestTwoTerminals(Echo, LifecycleConformance):
    plugin = at("two_terminals")


class TestTokenAfterEnd(Echo, LifecycleConformance):
    plugin = at("late_token")


class TestUncountedAbort(Echo, AbortConformance):
    plugin = at("uncounted_abort")


# --- aborts and the end -------------------------------------------------------------------------


class PagedScheduler(EchoScheduler):
    """Counts one page for every running request, and never gets it back from an aborted one."""

    num_leaked = 0

    def abort(self, request_id, ledger) -> None:
        self.num_leaked += request_id in self._running
        super().abort(request_id, ledger)

    def metrics(self) -> EngineMetrics:
        used = len(self._running) + self.num_leaked
        return msgspec.structs.replace(super().metrics(), kv_used_pages=used, kv_total_pages=99)


class LingeringScheduler(EchoScheduler):
    """Leaves a thread behind."""

    def close(self) -> None:
        threading.Thread(target=time.sleep, args=[1.0], daemon=True).start()


leaky = Plugin(RescheduledFamily(PagedScheduler, num_pages=99))
lingering = Plugin(RescheduledFamily(LingeringScheduler))


class TestLeakyAbort(Echo, AbortConformance):
    plugin = at("leaky")
    timeout_s = 0.5


class TestLingeringThread(Echo, LifecycleConformance):
    plugin = at("lingering")


# --- limits -------------------------------------------------------------------------------------


class LongScheduler(EchoScheduler):
    """One token too many."""

    def _end(self, request_id, ledger, reason) -> None:
        ledger.push(request_id, [1])
        super()._end(request_id, ledger, reason)


class TalkativeScheduler(EchoScheduler):
    """Sends the stop token, and counts it once."""

    def _advance(self, request_id, running, ledger) -> None:
        token_id = running.answer[running.position % len(running.answer)]
        if token_id in running.stops:
            ledger.push(request_id, [token_id])
            self._end(request_id, ledger, FinishReason.LENGTH)
        else:
            super()._advance(request_id, running, ledger)


class HastyScheduler(EchoScheduler):
    """Forgets min_tokens."""

    def _advance(self, request_id, running, ledger) -> None:
        running.min_tokens = 0
        super()._advance(request_id, running, ledger)


long = Plugin(RescheduledFamily(LongScheduler))
talkative = Plugin(RescheduledFamily(TalkativeScheduler))
hasty = Plugin(RescheduledFamily(HastyScheduler))


class TestOneTokenTooMany(Echo, LimitsConformance):
    plugin = at("long")


class TestSentStopToken(Echo, LimitsConformance):
    plugin = at("talkative")


class TestForgottenMinTokens(Echo, LimitsConformance):
    plugin = at("hasty")


# --- refusals -----------------------------------------------------------------------------------


def vague(event: TokenEvent) -> list[TokenEvent]:
    if isinstance(event, Rejected) and isinstance(event.reason, InvalidToken):
        return [Rejected(event.request_id, Unsupported(field="prompt"))]
    return [event]


class TolerantScheduler(EchoScheduler):
    """Serves a request with a seed and ignores the seed."""

    def submit(self, request, ledger) -> None:
        params = msgspec.structs.replace(request.params, seed=None)
        super().submit(msgspec.structs.replace(request, params=params), ledger)


vague_reasons = Plugin(EditedFamily(vague))
tolerant = Plugin(RescheduledFamily(TolerantScheduler))


class TestVagueReason(Echo, RejectsConformance):
    plugin = at("vague_reasons")


class TestIgnoredSeed(Echo, RejectsConformance):
    plugin = at("tolerant")


# --- scheduling and sampling --------------------------------------------------------------------


class CrowdedScheduler(EchoScheduler):
    """Mixes up the answers of requests that run together."""

    def _advance(self, request_id, running, ledger) -> None:
        if len(self._running) > 1:
            running.answer = [0]
        super()._advance(request_id, running, ledger)


class ForgetfulScheduler(EchoScheduler):
    """Says that all but one token of a known prompt were cached, and answers it otherwise."""

    def __init__(self, options, plan) -> None:
        super().__init__(options, plan)
        self._known: set[tuple[str, int]] = set()
        self._cached_tokens: dict[int, int] = {}

    def submit(self, request, ledger) -> None:
        key = (request.cache_salt, request.prompt_token_ids[0])
        hit_tokens = len(request.prompt_token_ids) - 1 if key in self._known else 0
        self._cached_tokens[request.request_id] = hit_tokens
        self._known.add(key)
        super().submit(request, ledger)

    def _admit(self, ledger) -> bool:
        before = set(self._running)
        admitted = super()._admit(_Cached(ledger, self._cached_tokens))
        for request_id in self._running.keys() - before:
            self._running[request_id].position = bool(self._cached_tokens[request_id])
        return admitted

    def reset_prefix_cache(self) -> None:
        self._known.clear()


class _Cached:
    def __init__(self, ledger, cached_tokens: dict[int, int]) -> None:
        self._ledger = ledger
        self._cached_tokens = cached_tokens

    def schedule(self, request_id: int, _: int) -> None:
        self._ledger.schedule(request_id, self._cached_tokens[request_id])


class RandomScheduler(EchoScheduler):
    """Draws without regard to the seed, and ranks its choice wrongly."""

    def _advance(self, request_id, running, ledger) -> None:
        running.answer = [random.randrange(1000)]
        super()._advance(request_id, running, _Ranked(ledger))


class _Ranked:
    def __init__(self, ledger) -> None:
        self._ledger = ledger
        self.finish = ledger.finish

    def push(self, request_id: int, token_ids: list[int]) -> None:
        top = TokenLogprobs(-1.0, 3, [4, 3, 2, 1, 0], [-1.0, -1.5, -2.0, -2.5, -3.0])
        self._ledger.push(request_id, token_ids, [top])


crowded = Plugin(RescheduledFamily(CrowdedScheduler))
forgetful = Plugin(RescheduledFamily(ForgetfulScheduler, prefix_cache=True))
seedless = Plugin(RescheduledFamily(EchoScheduler, sampling=True, seed=True))
misranked = Plugin(RescheduledFamily(RandomScheduler, logprobs=True))


class TestCrowded(Echo, SchedulingConformance):
    plugin = at("crowded")


class TestForgetfulCache(Echo, SchedulingConformance):
    plugin = at("forgetful")
    requirements = Requirements(**ECHO | {"prefix_cache": True}, paged_kv=False)


class TestIgnoredSamplingSeed(Echo, SamplingConformance):
    plugin = at("seedless")
    requirements = Requirements(**ECHO | {"sampling": True, "seed": True}, paged_kv=False)


class TestWrongRank(Echo, SamplingConformance):
    plugin = at("misranked")
    requirements = Requirements(**ECHO | {"logprobs": True}, paged_kv=False)


# --- level 0 ------------------------------------------------------------------------------------


class TestClaimsEverything(Echo, StaticConformance):
    plugin = "tests.testing.light_plugins:greedy"


class TestNumpyAtTop(Echo, StaticConformance):
    plugin = "tests.testing.numpy_at_top"


class TestCareless(Echo, StaticConformance):
    plugin = "tests.testing.light_plugins:careless"
    requirements = Requirements(paged_kv=False)
    import_budget_s = 0.0
