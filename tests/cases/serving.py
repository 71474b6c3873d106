"""The real server over a checkpoint, on a thread of this process: one engine, real TCP."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import uvloop
from pegainfer_server.lifecycle import Lifecycle
from pegainfer_server.listener import bind, url
from pegainfer_server.loading import Loading
from pegainfer_server.settings import ServerSettings
from pegainfer_server.stop_signals import StopSignals

from pegainfer_core.contract import CoreOptions
from pegainfer_core.plugin import PluginHost, prepare_launch
from tests.cases.http_server import HttpServer

START_TIMEOUT_S = 60.0
TINY = {"backend": "numpy", "max_num_seqs": 32}


class _Bell(StopSignals):
    """Signals belong to the main thread; here somebody rings."""

    def catch(self) -> None:
        """Remember the loop to ring in."""
        self._loop = asyncio.get_running_loop()

    def ring(self) -> None:
        """Ask the server to stop, from any thread."""
        self._loop.call_soon_threadsafe(self.stop.set)


@contextlib.contextmanager
def serving(
    folder: Path,
    host: PluginHost,
    *,
    settings: dict[str, object] | None = None,
    stall_timeout_s: float = 0.0,
    **options: object,
) -> Iterator[HttpServer]:
    """Serve a checkpoint until the block ends, then check that the server stopped well.

    Args:
        folder: The checkpoint.
        host: The plugins.
        settings: Differences from the default `ServerSettings`; the model is called `m`.
        stall_timeout_s: As `--stall-timeout`.
        **options: Of `CoreOptions`.
    """
    launch = prepare_launch(host, folder, options=CoreOptions(**{**TINY, **options}))
    sock = bind("127.0.0.1", 0, stall_timeout_s=stall_timeout_s)
    resolved = ServerSettings(
        **{"model_names": ("m",), "model_root": str(folder)} | (settings or {})
    )
    bell = _Bell()
    ready = threading.Event()
    codes: list[int] = []

    loading = Loading(launch, in_process=True, generation_config="auto")

    def run() -> None:
        lifecycle = Lifecycle(sock, resolved, host, loading.result, lambda _: ready.set(), bell)
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                codes.append(runner.run(lifecycle.run()))
        finally:
            ready.set()

    thread = threading.Thread(target=run, daemon=True)
    where = url(sock)
    thread.start()
    assert ready.wait(START_TIMEOUT_S) and thread.is_alive(), "the server did not start"
    server = HttpServer(where)
    try:
        yield server
    finally:
        server.close()
        bell.ring()
        thread.join(START_TIMEOUT_S)
        assert not thread.is_alive()
    assert codes == [0]
