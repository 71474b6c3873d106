"""A running engine in this process, with the event loop that talks to it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pegainfer_core.contract import EngineError
from pegainfer_core.engine import EngineClient
from pegainfer_core.llm.event_loop_thread import EventLoopThread

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from pegainfer_core.contract import EngineHandle
    from pegainfer_core.llm.answer import Answer
    from pegainfer_core.plugin import PreparedLaunch

T = TypeVar("T")


class EngineSession:
    """Starts an engine and keeps it until `close`.

    Attributes:
        launch: What was started.
        client: The engine's; use it inside `run` only.
    """

    def __init__(self, launch: PreparedLaunch) -> None:
        """Start the engine; returns once it is ready.

        Raises:
            ConfigError: A fault of checkpoint or options found while loading.
            EngineError: The engine could not start.
            PluginFault: A plugin's `engine_ready` raised.
        """
        self.launch = launch
        self._lock = threading.Lock()
        self._closed = False
        self._handle = launch.family.launch(launch.context, launch.plan)
        try:
            launch.host.hooks.engine_ready(self._handle, launch.family, launch.plan)
        except BaseException:
            self._handle.close()
            raise
        self._loop = EventLoopThread("pegainfer-llm")
        self.client = self._loop.run(_connect(self._handle))

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine on the session's loop.

        Raises:
            EngineError: The session is closed.
        """
        if self._closed:
            work.close()
            raise EngineError("this LLM is closed")
        return self._loop.run(work)

    def tell_plugins(self, answer: Answer, request_id: int | None) -> None:
        """Call `request_finished` for a request that reached the engine."""
        if request_id is None:
            return
        context = self.launch.context
        record = answer.record(request_id, Path(context.model_dir).name, context.family)
        self.launch.host.hooks.request_finished(record)

    def close(self) -> None:
        """Fail what still runs, then stop engine and loop. Harmless when called again."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.launch.host.hooks.engine_stopping(self._handle)
        # Not through the client, whose close needs a worker thread: none can start any more when
        # this runs at the end of the program.
        self._handle.close()
        self._loop.close()


async def _connect(handle: EngineHandle) -> EngineClient:
    return EngineClient(handle)
