"""Stops a Qwen3 engine inside a step, as if that step were still on the device, and logs rows."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from pegainfer_core.contract import SamplingParams

if TYPE_CHECKING:
    from pegainfer_core.engine import StepPlan
    from pegainfer_core.testing.conformance.session import Session

PLUG = SamplingParams(temperature=0, max_tokens=1)
TIMEOUT_S = 60.0


class LoggedRow(NamedTuple):
    """What one row of a step computes, and the pages that it has at that moment."""

    request_id: int
    start: int
    num_tokens: int
    samples: bool
    page_ids: tuple[int, ...]


class StepGate:
    """Every step of every engine passes here first, on the engine's thread.

    Open, it only logs. Closed, a step waits until the test lets it run: commands sent meanwhile
    reach the engine while its step is under way, and tests know exactly which step comes when.

    Attributes:
        steps: Rows of every step so far. Clear it between engines: they number requests alike.
    """

    def __init__(self) -> None:
        self.steps: list[list[LoggedRow]] = []
        self._entered: queue.SimpleQueue[list[LoggedRow]] = queue.SimpleQueue()
        self._permits = threading.Semaphore(0)
        self._closed = False

    def enter(self, plan: StepPlan) -> None:
        """The engine is about to compute this plan."""
        rows = [
            LoggedRow(r.sequence.request_id, *r[1:], tuple(r.sequence.page_ids)) for r in plan.rows
        ]
        self.steps.append(rows)
        if self._closed:
            self._entered.put(rows)
            assert self._permits.acquire(timeout=TIMEOUT_S), "nobody let the step run"

    def close(self) -> None:
        """Hold the next step."""
        self._closed = True

    def wait(self) -> list[LoggedRow]:
        """Wait until a step is held; returns its rows."""
        return self._entered.get(timeout=TIMEOUT_S)

    def step(self) -> list[LoggedRow]:
        """Let the held step run and hold the next one; returns the next one's rows."""
        self._permits.release()
        return self.wait()

    def open(self) -> None:
        """Let the held step and all later ones run."""
        self._closed = False
        self._permits.release()

    @contextmanager
    def together(self, session: Session) -> Iterator[None]:
        """All that is submitted in the block reaches the engine between the same two steps."""
        self.close()
        plug = session.submit([1], PLUG)
        self.wait()
        yield
        self.open()
        session.answer(plug)

    def first_step(self, request_id: int) -> int:
        """The step in which work on a request began."""
        return next(i for i, rows in enumerate(self.steps) if _has(rows, request_id))

    def rows_of(self, request_id: int) -> list[LoggedRow]:
        """Every row of one request."""
        return [row for rows in self.steps for row in rows if row.request_id == request_id]


def _has(rows: list[LoggedRow], request_id: int) -> bool:
    return any(row.request_id == request_id for row in rows)
