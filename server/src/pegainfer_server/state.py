"""What one server knows at run time: its phase, its model, its open requests."""

from __future__ import annotations

import asyncio
import enum
import time
from typing import TYPE_CHECKING

from pegainfer_core.contract import EngineError, HealthState
from pegainfer_server.answer.stream_keeper import StreamKeeper
from pegainfer_server.api_error import (
    ApiError,
    engine_failed,
    invalid,
    overloaded,
    unavailable,
)
from pegainfer_server.generation import Generation
from pegainfer_server.metrics import RequestMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pegainfer_core.plugin import RequestRecord
    from pegainfer_server.job import Job
    from pegainfer_server.metrics import Histogram
    from pegainfer_server.served_model import ServedModel
    from pegainfer_server.settings import ServerSettings
    from pegainfer_server.tracing import Tracing


class ServerPhase(enum.StrEnum):
    """Where a server is in its life, as `/health` calls it."""

    LOADING = "loading"
    OK = "ok"
    STALLED = "stalled"
    DRAINING = "draining"
    DEAD = "dead"


_REFUSALS = {
    ServerPhase.LOADING: "the model is still loading",
    ServerPhase.STALLED: "the engine does not respond",
    ServerPhase.DRAINING: "the server is shutting down",
    ServerPhase.DEAD: "the engine is dead",
}


class ServerState:
    """Shared by all routes; belongs to the event loop.

    Attributes:
        settings: Settings of the server.
        model: Set once the engine is ready.
        metrics: Over all requests.
        keeper: Looks after open streams.
        started_unix_s: When the server started.
        draining: Whether no new work is taken.
        on_record: Told about every ended request.
        num_closed: Requests that ended so far.
        tracing: Makes traces of requests; None for no traces.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.model: ServedModel | None = None
        self.metrics = RequestMetrics()
        self.keeper = StreamKeeper(settings.ping_interval_s)
        self.started_unix_s = int(time.time())
        self.draining = False
        self.on_record: Callable[[RequestRecord], None] | None = None
        self.num_closed = 0
        self.tracing: Tracing | None = None
        self._open: set[Generation] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    def health(self) -> tuple[ServerPhase, str]:
        """The phase, and words for it when it is not OK."""
        phase, detail = self._phase()
        if phase is ServerPhase.OK:
            return phase, ""
        return phase, f"{_REFUSALS[phase]}: {detail}" if detail else _REFUSALS[phase]

    def serving(self) -> ServedModel:
        """The model, for new work.

        Raises:
            ApiError: 503 while loading, stalled, draining or dead.
        """
        phase, words = self.health()
        if self.model is None or phase is not ServerPhase.OK:
            raise unavailable(words, phase.value)
        return self.model

    def start(self, job: Job) -> Generation:
        """Submit a job.

        Raises:
            ApiError: 429 when too many wait, 503 when the engine is dead.
        """
        return self.start_all([job])[0]

    def start_all(self, jobs: Sequence[Job]) -> list[Generation]:
        """Submit the jobs of one request, all or none; samples come behind the first of theirs.

        Raises:
            ApiError: 400 for more than may ever wait, 429 when too many wait, 503 when the engine
                is dead.
        """
        model = self.serving()
        room = model.info.max_num_seqs + self.settings.max_queue
        if len(jobs) > room:
            raise invalid(f"{len(jobs)} answers were asked for; at most {room} are taken", "n")
        if model.client.num_open + len(jobs) > room:
            waiting = max(model.client.num_open - model.info.max_num_seqs, 0)
            raise overloaded(f"{waiting} requests are already waiting; try again later")
        generations: list[Generation] = []
        first: Generation | None = None
        try:
            for job in jobs:
                first = first if job.sample_index else None
                generations.append(Generation(job, model, self, first))
                first = first or generations[-1]
        except EngineError as error:
            for generation in generations:
                generation.close()
            raise unavailable(f"the engine is dead: {error}", ServerPhase.DEAD.value) from error
        self._open.update(generations)
        self._idle.clear()
        return generations

    async def wait_idle(self) -> None:
        """Wait until no request is open."""
        await self._idle.wait()

    @property
    def num_open(self) -> int:
        """Requests that have not been answered."""
        return len(self._open)

    def token_gap_histogram(self) -> Histogram:
        """Takes the seconds between tokens."""
        return self.metrics.token_gap

    def engine_error(self, message: str) -> ApiError:
        """A fault of the engine, unless it ended because the server stops."""
        if self.draining:
            return unavailable(message, ServerPhase.DRAINING.value)
        return engine_failed(message)

    def count_refusal(self, method: str, error: ApiError) -> None:
        """Count a request that gets an error instead of an answer; a fault of ours is none."""
        if method == "POST" and error.status != 500:
            self.metrics.rejected[error.detail.code or "other"] += 1

    def generation_closed(self, generation: Generation, record: RequestRecord) -> None:
        """Count an ended request."""
        self.num_closed += 1
        self._open.discard(generation)
        if not self._open:
            self._idle.set()
        self.metrics.take(record)
        if self.tracing is not None:
            self.tracing.generation_ended(generation.job, record)
        if self.on_record is not None:
            self.on_record(record)

    def _phase(self) -> tuple[ServerPhase, str]:
        if self.model is not None:
            health = self.model.client.health()
            if health.state is HealthState.DEAD and not self.draining:
                return ServerPhase.DEAD, health.detail
            if health.state is HealthState.STALLED:
                return ServerPhase.STALLED, health.detail
        if self.draining:
            return ServerPhase.DRAINING, ""
        if self.model is None or health.state is HealthState.STARTING:
            return ServerPhase.LOADING, ""
        return ServerPhase.OK, ""
