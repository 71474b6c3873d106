"""Runs a family's real scheduler under a load on a simulated clock, and checks all it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pegainfer_core.contract import GenerateRequest, SamplingParams, ServePlan
from pegainfer_core.engine import Ledger, ModelRunner, Scheduler
from pegainfer_core.kv import KvManager
from pegainfer_core.testing.simulator.clock import SimulatedClock
from pegainfer_core.testing.simulator.front_end import FrontEnd, FrontEndCost
from pegainfer_core.testing.simulator.report import Report
from pegainfer_core.testing.simulator.simulated_answer import SimulatedAnswer
from pegainfer_core.testing.simulator.simulated_runner import SimulatedRunner
from pegainfer_core.testing.simulator.simulation_error import SimulationError
from pegainfer_core.testing.simulator.token_rule import end_token

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.testing.simulator.cost_model import CostModel
    from pegainfer_core.testing.simulator.trace import Arrival, Trace


class SchedulerFactory(Protocol):
    """Makes a family's scheduler, as its engine does."""

    def __call__(
        self, runner: ModelRunner, kv: KvManager, plan: ServePlan, *, clock: Callable[[], float]
    ) -> Scheduler:
        """Make one that takes the time from `clock`, in seconds, where it needs it."""
        ...


class Simulation:
    """One engine and its clients.

    Attributes:
        clock: The simulated time.
        kv: The engine's pages.
        runner: The engine's runner.
        answers: What clients saw, in the order in which requests reached the engine.

    Args:
        make_scheduler: The family's scheduler.
        plan: Limits of the engine; `num_pages` is the size of its pool, the padding page included.
        cost: Of steps.
        front_end: Of the way between clients and engine.
        prefix_cache: Whether prefixes are kept.
        ahead: Whether steps are launched ahead.

    Raises:
        ValueError: The plan does not say how many pages there are.
    """

    def __init__(
        self,
        make_scheduler: SchedulerFactory,
        plan: ServePlan,
        cost: CostModel,
        front_end: FrontEndCost | None = None,
        *,
        prefix_cache: bool = True,
        ahead: bool = True,
    ) -> None:
        if plan.num_pages is None:
            raise ValueError("the plan of a simulation needs num_pages: no device is there to ask")
        self.clock = SimulatedClock()
        self.kv = KvManager(plan.num_pages, plan.page_tokens, prefix_cache=prefix_cache)
        self.runner = SimulatedRunner(cost, self.clock, plan, ahead=ahead)
        self.answers: list[SimulatedAnswer] = []
        self._way = front_end or FrontEndCost()
        self._vocab_size = plan.vocab_size
        self._scheduler = make_scheduler(self.runner, self.kv, plan, clock=lambda: self.clock.now_s)
        self._ledger = Ledger()
        self._front_end = FrontEnd(self._way)
        self._open: dict[int, SimulatedAnswer] = {}
        self._began_s = 0.0

    def run(self, trace: Trace) -> Report:
        """Serve a load to its end. A simulation runs once.

        Raises:
            SimulationError: A request stalled, failed, ended early or with a wrong token, or a
                page was not given back.
        """
        for arrival in trace.opening():
            self._front_end.send(arrival)
        while self._scheduler.has_work() or self._wait():
            for arrival in self._front_end.due(self.clock.now_s):
                self._submit(arrival)
            self._collect(trace)  # refusals
            if self._scheduler.has_work():
                self._step()
                self._collect(trace)
        self._check_end()
        return Report.of(
            self.answers,
            self._scheduler.metrics(),
            num_steps=self.runner.num_steps,
            max_rows=self.runner.max_rows,
            busy_s=self.runner.busy_s,
        )

    def _wait(self) -> bool:
        """Let an idle engine sleep until a request moves; False when none will."""
        next_s = self._front_end.next_s()
        if next_s is None:
            return False
        self.clock.advance_to(next_s)
        return True

    def _submit(self, arrival: Arrival) -> None:
        request_id = len(self.answers) + 1
        limit = arrival.max_tokens if arrival.has_limit else None
        if limit is None:
            self.runner.answer_tokens[request_id] = arrival.max_tokens
        request = GenerateRequest(
            request_id=request_id,
            prompt_token_ids=arrival.prompt_token_ids,
            params=SamplingParams(max_tokens=limit, temperature=0),
            eos_token_ids=[end_token(self._vocab_size)],
            priority=arrival.priority,
            arrival_s=arrival.at_s,
        )
        answer = SimulatedAnswer(arrival)
        self.answers.append(answer)
        self._open[request_id] = answer
        self._ledger.open(request)
        self._scheduler.submit(request, self._ledger)

    def _step(self) -> None:
        self._began_s = self.clock.now_s
        before = (self.runner.num_steps, self.clock.now_s)
        unread = self._ledger.generation_tokens
        self._scheduler.step(self._ledger)
        after = (self.runner.num_steps, self.clock.now_s)
        if before == after and unread == self._ledger.generation_tokens:
            metrics = self._scheduler.metrics()
            raise SimulationError(f"{len(self._open)} requests wait for no step: {metrics}")

    def _collect(self, trace: Trace) -> None:
        frame = self._ledger.take_frame()
        heard_s = self.clock.now_s + self._way.response_s
        for event in frame.events if frame else ():
            answer = self._open[event.request_id]
            answer.take(event, self._began_s, heard_s)
            if answer.terminal is None:
                continue
            del self._open[event.request_id]
            answer.check(self._vocab_size)
            for arrival in trace.following(answer.arrival, answer.token_ids, heard_s):
                self._front_end.send(arrival)

    def _check_end(self) -> None:
        metrics = self._scheduler.metrics()
        left = (metrics.num_running, metrics.num_waiting, metrics.kv_used_pages, len(self._open))
        if any(left) or len(self._ledger) or self.kv.num_available != self.kv.pool.num_total:
            raise SimulationError(
                f"left at the end: {metrics.num_running} running, {metrics.num_waiting} waiting, "
                f"{metrics.kv_used_pages} pages used, {self.kv.num_available} of "
                f"{self.kv.pool.num_total} available"
            )
