"""The engine's loop: drain commands, step the scheduler, ship one frame. One thread, no sockets."""

from __future__ import annotations

import logging
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import msgspec

from pegainfer_core.contract import EngineMetrics, FinishReason, InvalidParam
from pegainfer_core.engine.command import (
    Abort,
    ChangeAdapters,
    Close,
    Command,
    GrammarRead,
    ResetPrefixCache,
    Submit,
)
from pegainfer_core.engine.idle_memory import IdleMemory
from pegainfer_core.engine.ledger import Ledger
from pegainfer_core.engine.scheduler import OffloadingScheduler

if TYPE_CHECKING:
    from pegainfer_core.contract import FrameSink, GenerateRequest
    from pegainfer_core.engine.heartbeat import Heartbeat
    from pegainfer_core.engine.scheduler import Scheduler
    from pegainfer_core.grammar import GrammarDesk

_IDLE_BEAT_S = 1.0
_METRICS_PERIOD_S = 0.05

logger = logging.getLogger(__name__)


class Driver:
    """Runs one scheduler until told to close or a step raises.

    Attributes:
        inbox: Commands from any thread.
        metrics: Newest snapshot; taken at most every 50 ms, and whenever the engine goes idle.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        sink: FrameSink,
        heartbeat: Heartbeat,
        grammars: GrammarDesk | None = None,
    ) -> None:
        self.inbox: SimpleQueue[Command | ChangeAdapters | GrammarRead] = SimpleQueue()
        self.metrics = EngineMetrics()
        self._scheduler = scheduler
        self._sink = sink
        self._heartbeat = heartbeat
        self._ledger = Ledger()
        self._grammars = grammars
        self._reading: dict[int, GenerateRequest] = {}
        self._memory = IdleMemory()
        self._num_steps = 0
        self._metrics_due_s = 0.0
        self._closing = False
        self._take_metrics()

    def run(self) -> None:
        """Loop until `Close`. Open requests are failed on the way out, whatever the reason.

        Raises:
            Exception: What a step raised; the engine is then dead.
        """
        reason = "the engine was shut down before the request was answered"
        try:
            while not self._closing:
                self._turn()
        except Exception as error:
            reason = f"the engine failed: {type(error).__name__}: {error}"
            logger.exception("engine step failed")
            raise
        finally:
            if self._grammars is not None:
                self._grammars.close()
            self._ledger.fail_all(reason)
            self._ship()
            self._take_metrics()

    def fail_unread(self, message: str) -> None:
        """Fail the submissions that no turn of the loop will read any more."""
        while not self.inbox.empty():
            command = self.inbox.get()
            if isinstance(command, Submit):
                self._ledger.open(command.request)
            elif isinstance(command, ChangeAdapters):
                command.refuse(message)
        self._ledger.fail_all(message)
        self._ship()

    def _turn(self) -> None:
        self._drain()
        if self._closing:
            return
        started_ns = time.monotonic_ns()
        if self._scheduler.has_work():
            self._scheduler.step(self._ledger)
            self._num_steps += 1
            self._heartbeat.end_step(started_ns)
        # Metrics first: whoever has seen a request's last frame must find its pages freed.
        if time.monotonic() >= self._metrics_due_s or not self._scheduler.has_work():
            self._take_metrics()
        self._ship()

    def _drain(self) -> None:
        """Apply every waiting command; block for one when there is nothing else to do."""
        self._heartbeat.beat()
        if not self._scheduler.has_work():
            self._memory.look(self._num_steps)
            try:
                self._apply(self.inbox.get(timeout=_IDLE_BEAT_S))
            except Empty:
                return
        while not self.inbox.empty():
            self._apply(self.inbox.get())

    def _apply(self, command: Command | ChangeAdapters | GrammarRead) -> None:
        match command:
            case Submit(request):
                self._ledger.open(request)
                self._submit(request)
            case Abort(request_id):
                self._abort(request_id)
            case GrammarRead(request_id, problem):
                self._submit_read(request_id, problem)
            case ResetPrefixCache(device_only):
                self._scheduler.reset_prefix_cache()
                if not device_only and isinstance(self._scheduler, OffloadingScheduler):
                    self._scheduler.drop_offloaded()
            case ChangeAdapters():
                command.run()
            case Close():
                self._closing = True

    def _submit(self, request: GenerateRequest) -> None:
        """Hand a request to the scheduler, once its grammar was read if it has one."""
        if request.params.structured is None or self._grammars is None:
            self._scheduler.submit(request, self._ledger)
            return
        request_id, inbox = request.request_id, self.inbox
        self._reading[request_id] = request
        self._grammars.prepare(request, lambda problem: inbox.put(GrammarRead(request_id, problem)))

    def _submit_read(self, request_id: int, problem: str) -> None:
        request = self._reading.pop(request_id, None)
        if request is None:  # It was aborted meanwhile.
            if self._grammars is not None:
                self._grammars.take(request_id)
        elif problem:
            self._ledger.reject(request_id, InvalidParam(field="structured", problem=problem))
        else:
            self._scheduler.submit(request, self._ledger)

    def _abort(self, request_id: int) -> None:
        if self._reading.pop(request_id, None) is not None:
            self._ledger.abort(request_id)
        elif self._ledger.is_open(request_id):
            self._scheduler.abort(request_id, self._ledger)

    def _ship(self) -> None:
        frame = self._ledger.take_frame()
        if frame is not None:
            self._sink(frame)

    def _take_metrics(self) -> None:
        ledger = self._ledger
        self._metrics_due_s = time.monotonic() + _METRICS_PERIOD_S
        self.metrics = msgspec.structs.replace(
            self._scheduler.metrics(),
            num_steps=self._num_steps,
            num_scheduled=ledger.num_scheduled,
            queue_s=ledger.queue_s,
            prompt_tokens=ledger.prompt_tokens,
            generation_tokens=ledger.generation_tokens,
            num_finished_stop=ledger.finished[FinishReason.STOP],
            num_finished_length=ledger.finished[FinishReason.LENGTH],
            num_aborted=ledger.finished[FinishReason.ABORT],
            num_failed=ledger.num_failed,
            num_rejected=ledger.num_rejected,
        )
