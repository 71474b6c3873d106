"""The in-process transport: a scheduler on a thread of this process."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from pegainfer_core.contract import EngineError, EngineHealth, EngineMetrics, HealthState
from pegainfer_core.engine.adapter_loading import AdapterLoading
from pegainfer_core.engine.command import (
    Abort,
    ChangeAdapters,
    Close,
    Command,
    ResetPrefixCache,
    Submit,
)
from pegainfer_core.engine.driver import Driver
from pegainfer_core.engine.heartbeat import Heartbeat

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from pegainfer_core.contract import (
        AdapterInfo,
        EngineInfo,
        FrameSink,
        GenerateRequest,
        StepFrame,
    )
    from pegainfer_core.engine.adapters import AdapterTable
    from pegainfer_core.engine.scheduler import Scheduler
    from pegainfer_core.grammar import GrammarDesk


class BuiltEngine(NamedTuple):
    """What a family's builder returns.

    Attributes:
        scheduler: Ready to step.
        info: Its final facts.
        adapters: Those of the engine, if it takes any.
        grammars: Reads the grammars of requests before the scheduler gets them; None where the
            engine honours none.
    """

    scheduler: Scheduler
    info: EngineInfo
    adapters: AdapterTable | None = None
    grammars: GrammarDesk | None = None


class LocalEngine:
    """`EngineHandle` over a driver thread.

    The scheduler is built, stepped and closed on that one thread, because device contexts and
    handles belong to the thread that makes them.
    """

    def __init__(self, build: Callable[[], BuiltEngine]) -> None:
        """Build the engine and return once it is ready.

        Raises:
            Exception: Whatever `build` raised, unchanged.
        """
        self._build = build
        self._heartbeat = Heartbeat()
        self._sink: FrameSink | None = None
        self._driver: Driver | None = None
        self._info: EngineInfo | None = None
        self._last_metrics = EngineMetrics()
        self._adapters = AdapterLoading(self._send)
        self._build_error: BaseException | None = None
        self._fault = ""
        self._closed = False
        self._ready = threading.Event()
        # Submissions and the driver's end race for the last terminal; this lock orders them.
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="pegainfer-engine", daemon=True)
        self._thread.start()
        self._ready.wait()
        self._raise_build_error()

    @property
    def info(self) -> EngineInfo:
        """Facts about the engine."""
        if self._info is None:
            raise EngineError("the engine was never built")
        return self._info

    def connect(self, sink: FrameSink) -> None:
        """Deliver every later frame to `sink`, on the engine thread."""
        self._sink = sink

    def submit(self, request: GenerateRequest) -> None:
        """Queue a request.

        Raises:
            EngineError: The engine is dead or closed.
        """
        self._send(Submit(request))

    def abort(self, request_id: int) -> None:
        """Ask to end a request; unknown and ended ids are ignored."""
        if not self._closed:
            self._send(Abort(request_id))

    def reset_prefix_cache(self, *, device_only: bool = False) -> None:
        """Drop cached KV pages that no live request uses."""
        self._send(ResetPrefixCache(device_only))

    def adapters(self) -> list[AdapterInfo]:
        """Those loaded now, by name."""
        return self._adapters.infos

    def load_adapter(self, name: str, path: str, *, replace: bool = False) -> Future[AdapterInfo]:
        """Load an adapter; its files are read on a thread of their own."""
        return self._adapters.load(name, path, replace=replace)

    def unload_adapter(self, name: str) -> Future[AdapterInfo]:
        """Take an adapter out."""
        return self._adapters.unload(name)

    def metrics(self) -> EngineMetrics:
        """The newest metrics snapshot."""
        driver = self._driver
        return driver.metrics if driver is not None else self._last_metrics

    def health(self) -> EngineHealth:
        """Dead once the loop ended, stalled when its heartbeat is overdue."""
        if self._closed:
            return EngineHealth(HealthState.DEAD, self._fault or "the engine was shut down")
        return self._heartbeat.health()

    def close(self) -> None:
        """Fail open requests, join the engine thread and let go of the scheduler."""
        driver = self._driver
        if driver is not None:
            driver.inbox.put(Close())
        self._thread.join()

    def _raise_build_error(self) -> None:
        if self._build_error is not None:
            self._thread.join()
            raise self._build_error

    def _send(self, command: Command | ChangeAdapters) -> None:
        with self._lock:
            if self._closed or self._driver is None:
                raise EngineError(self._fault or "the engine was shut down")
            self._driver.inbox.put(command)

    def _deliver(self, frame: StepFrame) -> None:
        if self._sink is not None:
            self._sink(frame)

    def _run(self) -> None:
        try:
            scheduler, self._info, table, grammars = self._build()
            self._adapters.serve(table)
            driver = Driver(scheduler, self._deliver, self._heartbeat, grammars)
            self._driver = driver
        except BaseException as error:
            self._build_error = error
            self._ready.set()
            return
        self._heartbeat.beat()
        self._ready.set()
        try:
            driver.run()
        except Exception as error:
            self._fault = f"{type(error).__name__}: {error}"
        finally:
            self._end(driver)
            scheduler.close()
            # Its memory goes on this thread, though others still hold this handle.
            self._last_metrics = driver.metrics
            self._driver = None

    def _end(self, driver: Driver) -> None:
        """Refuse later submissions and fail those that slipped in after the last drain."""
        with self._lock:
            self._closed = True
        driver.fail_unread(self._fault or "the engine was shut down")
