"""The process transport: the engine lives in a child process, away from the server's GIL."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import msgspec

from pegainfer_core.contract import (
    EngineError,
    EngineHealth,
    EngineInfo,
    EngineMetrics,
    HealthState,
    Rejected,
    StepFrame,
)
from pegainfer_core.engine.adapter_tickets import AdapterTickets
from pegainfer_core.engine.command import (
    Abort,
    Close,
    Command,
    LoadAdapter,
    ResetPrefixCache,
    Submit,
    UnloadAdapter,
)
from pegainfer_core.engine.heartbeat import Heartbeat
from pegainfer_core.engine.open_requests import OpenRequests
from pegainfer_core.engine.validation import check_widths
from pegainfer_core.engine.wire import (
    AdaptersChanged,
    Channel,
    Fault,
    FromWorker,
    Launch,
    Ready,
    Report,
    StartFailed,
)
from pegainfer_core.weights.errors import ConfigError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from pegainfer_core.contract import (
        AdapterInfo,
        FrameSink,
        GenerateRequest,
        LaunchContext,
        ServePlan,
    )

_WATCH_S = 0.5
_EXIT_GRACE_S = 10.0
_EXIT_STATUS_S = 1.0

logger = logging.getLogger(__name__)


class ProcessEngine:
    """`EngineHandle` over a child process and a socket pair."""

    def __init__(self, context: LaunchContext, plan: ServePlan, *, json_logs: bool = False) -> None:
        """Start the worker and return once its engine is ready.

        Args:
            context: What to load.
            plan: How to run it.
            json_logs: Whether the worker writes its log lines as JSON.

        Raises:
            ConfigError: Checkpoint or options are at fault.
            EngineError: The engine failed to start; the message holds the cause.
        """
        self._heartbeat = Heartbeat()
        self._sink: FrameSink | None = None
        self._metrics = EngineMetrics()
        self._open = OpenRequests()
        self._lock = threading.Lock()
        self._fault = ""
        self._dead = False
        self._closing = False
        self._process, self._channel = self._spawn(json_logs)
        self._messages = self._channel.receive(msgspec.msgpack.Decoder(FromWorker))
        self._info = self._launch(context, plan)
        self._adapters = AdapterTickets(self._info.adapters)
        self._reader = threading.Thread(target=self._read, name="pegainfer-reader", daemon=True)
        self._reader.start()
        self._watch_stop = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="pegainfer-watch", daemon=True)
        self._watcher.start()

    @property
    def info(self) -> EngineInfo:
        """Facts about the engine."""
        return self._info

    def connect(self, sink: FrameSink) -> None:
        """Deliver every later frame to `sink`, on the reader thread."""
        self._sink = sink

    def submit(self, request: GenerateRequest) -> None:
        """Queue a request.

        Raises:
            EngineError: The engine is dead or closed.
        """
        with self._lock:
            self._require_alive()
            self._open.add(request)
            try:
                self._send(Submit(request))
                return
            except BaseException as error:
                self._open.discard(request.request_id)
                reason = check_widths(request) if isinstance(error, OverflowError) else None
                if reason is None:
                    raise
        if self._sink is not None:
            self._sink(StepFrame([Rejected(request.request_id, reason)]))

    def abort(self, request_id: int) -> None:
        """Ask to end a request; unknown and ended ids are ignored."""
        with self._lock:
            if request_id in self._open and not self._dead:
                self._send(Abort(request_id))

    def reset_prefix_cache(self, *, device_only: bool = False) -> None:
        """Drop cached KV pages that no live request uses.

        Raises:
            EngineError: The engine is dead or closed.
        """
        with self._lock:
            self._require_alive()
            self._send(ResetPrefixCache(device_only))

    def adapters(self) -> list[AdapterInfo]:
        """Those loaded now, by name."""
        return self._adapters.loaded

    def load_adapter(self, name: str, path: str, *, replace: bool = False) -> Future[AdapterInfo]:
        """Load an adapter in the worker."""
        ticket, future = self._adapters.issue()
        self._send_if_alive(LoadAdapter(ticket, name, path, replace))
        return future

    def unload_adapter(self, name: str) -> Future[AdapterInfo]:
        """Take an adapter out in the worker."""
        ticket, future = self._adapters.issue()
        self._send_if_alive(UnloadAdapter(ticket, name))
        return future

    def metrics(self) -> EngineMetrics:
        """The newest snapshot the worker sent."""
        return self._metrics

    def health(self) -> EngineHealth:
        """Dead once the worker failed, fell silent for too long, or was closed."""
        if self._dead:
            return EngineHealth(HealthState.DEAD, self._fault or "the engine was shut down")
        return self._heartbeat.health()

    def close(self) -> None:
        """Fail open requests, end the worker and wait until it is gone."""
        with self._lock:
            self._closing = True
            if not self._dead:
                self._send(Close())
        self._await_exit()
        self._watch_stop.set()
        self._watcher.join()
        self._reader.join()
        self._channel.close()

    def _spawn(self, json_logs: bool) -> tuple[subprocess.Popen[bytes], Channel]:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "pegainfer_core.engine.worker"]
        command += [str(theirs.fileno()), str(self._heartbeat.fd)]
        if json_logs:
            command.append("json")
        with theirs:
            process = subprocess.Popen(
                command,
                pass_fds=(theirs.fileno(), self._heartbeat.fd),
                stdin=subprocess.DEVNULL,
            )
        return process, Channel(ours)

    def _launch(self, context: LaunchContext, plan: ServePlan) -> EngineInfo:
        try:
            self._channel.send(Launch(context, plan, list(sys.path)))
            answer = next(self._messages, None)
        except OSError:
            answer = None
        if isinstance(answer, Ready):
            return msgspec.structs.replace(answer.info, pid=self._process.pid)
        self._await_exit()
        self._channel.close()
        if isinstance(answer, StartFailed):
            if answer.user_fault:
                raise ConfigError(answer.message)
            raise EngineError(f"the engine failed to start: {answer.message}\n{answer.details}")
        code = self._process.returncode
        raise EngineError(f"the engine process ended while starting (exit status {code})")

    def _require_alive(self) -> None:
        if self._dead or self._closing:
            raise EngineError(self._fault or "the engine was shut down")

    def _send_if_alive(self, change: LoadAdapter | UnloadAdapter) -> None:
        with self._lock:
            if self._dead or self._closing:
                self._adapters.fail(change.ticket, self._fault or "the engine was shut down")
            else:
                self._send(change)

    def _send(self, message: Command | LoadAdapter | UnloadAdapter) -> None:
        try:
            self._channel.send(message)
        except OSError:
            pass  # The reader thread sees the same end and fails what is open.

    def _read(self) -> None:
        try:
            for message in self._messages:
                match message:
                    case StepFrame():
                        self._deliver(message)
                    case Report(metrics):
                        self._metrics = metrics
                    case AdaptersChanged():
                        self._adapters.settle(message)
                    case Fault(detail):
                        self._fault = detail
        except Exception as error:
            # Nobody reads the worker's answers any more, so it must not look alive.
            logger.exception("reading from the engine process failed")
            self._fault = f"reading from the engine process failed: {error}"
            self._channel.close()
        self._end()

    def _deliver(self, frame: StepFrame) -> None:
        self._open.note(frame)
        if self._sink is not None:
            self._sink(frame)

    def _end(self) -> None:
        """The worker is gone: whatever is still open will not be answered."""
        message = self._describe_end()
        with self._lock:
            self._dead = True
            self._fault = "" if self._closing else message
            events = self._open.fail_all(message)
        self._adapters.fail_all(message)
        if events and self._sink is not None:
            self._sink(StepFrame(list(events)))

    def _describe_end(self) -> str:
        if self._closing:
            return "the engine was shut down before the request was answered"
        if self._fault:
            return self._fault
        try:
            code = self._process.wait(_EXIT_STATUS_S)
        except subprocess.TimeoutExpired:
            return "the engine process closed its socket"
        return f"the engine process ended unexpectedly (exit status {code})"

    def _watch(self) -> None:
        """End a worker that fell silent: it holds a GPU and its clients wait in vain."""
        while not self._watch_stop.wait(_WATCH_S):
            if self._process.poll() is not None:
                return
            if self._heartbeat.stalled:
                self._fault = (
                    f"no sign of life from the engine for {self._heartbeat.silence_s:.0f} s"
                )
                self._process.kill()
                return

    def _await_exit(self) -> None:
        try:
            self._process.wait(_EXIT_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
