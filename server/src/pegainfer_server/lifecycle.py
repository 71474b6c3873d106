"""A server from its bound socket to its exit code: load, serve, drain, stop.

It stops on a signal, when loading fails, or when the engine dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, cast

import uvicorn

from pegainfer_core.contract import HealthState
from pegainfer_core.engine import EngineClient, IdleMemory
from pegainfer_server.app import create_app
from pegainfer_server.connection import Connection
from pegainfer_server.observers import Observers
from pegainfer_server.plugin_routes import plugin_routes
from pegainfer_server.sampling import effective_defaults
from pegainfer_server.served_model import ServedModel
from pegainfer_server.state import ServerState
from pegainfer_server.stop_signals import StopSignals

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Iterator

    from pegainfer_core.plugin import PluginHost
    from pegainfer_server.loading import Loaded
    from pegainfer_server.settings import ServerSettings

STOPPED = 0
ENGINE_DIED = 1

_HEALTH_PERIOD_S = 0.25
#: How long a server with a dead engine still answers 503 before it exits.
_DEATH_GRACE_S = 3.0
#: How long streams get to write the error event of a request that was cut short.
_LAST_WORDS_S = 2.0
_CONNECTIONS_S = 1

logger = logging.getLogger(__name__)


class WebServer(uvicorn.Server):
    """uvicorn without its own handling of signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the lifecycle's."""
        yield


class Lifecycle:
    """One server; `run` is called once."""

    def __init__(
        self,
        sock: socket.socket,
        settings: ServerSettings,
        host: PluginHost,
        load: Callable[[], Awaitable[Loaded]],
        on_ready: Callable[[ServedModel], None],
        signals: StopSignals | None = None,
    ) -> None:
        """Prepare.

        Args:
            sock: Listening, and owned from here on.
            settings: Of the server.
            host: The plugins, whose hooks accompany the engine.
            load: Starts the engine.
            on_ready: Called when requests can be served.
            signals: What tells the server to stop; by default the process's signals.
        """
        self._sock = sock
        self._settings = settings
        self._host = host
        self._load = load
        self._on_ready = on_ready
        self._state = ServerState(settings)
        if settings.trace_export is not None:
            self._state.tracing = settings.trace_export.open()
        self._signals = signals or StopSignals()

    async def run(self) -> int:
        """Serve until told to stop.

        Returns:
            The exit code: 0, or 1 when the engine died.

        Raises:
            Exception: Whatever made loading fail.
        """
        self._signals.catch()
        observers = Observers(self._host.hooks.request_finished)
        self._state.on_record = observers.tell
        web = self._web_server()
        serve = asyncio.create_task(web.serve(sockets=[self._sock]))
        keeper = asyncio.create_task(self._state.keeper.run())
        try:
            return await self._load_and_serve()
        finally:
            web.should_exit = True
            await serve
            keeper.cancel()
            observers.close()
            if self._state.tracing is not None:
                self._state.tracing.close()

    def _web_server(self) -> WebServer:
        hooks = self._host.hooks
        app = create_app(
            self._state,
            plugins=self._host.records,
            extra_routes=lambda config: plugin_routes(config, hooks.server_routes(config)),
        )
        config = uvicorn.Config(
            app,
            http=cast(type[Connection], partial(Connection, self._state.metrics)),
            ws="none",
            lifespan="off",
            proxy_headers=False,
            server_header=False,
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=_CONNECTIONS_S,
        )
        if (tls := self._settings.tls) is not None:
            config.ssl_certfile, config.ssl_keyfile = tls.certfile, tls.keyfile
            config.ssl_keyfile_password = tls.password
            config.ssl_ca_certs, config.ssl_cert_reqs = tls.ca_certs, tls.client_certificates
        return WebServer(config)

    async def _load_and_serve(self) -> int:
        stop = asyncio.create_task(self._signals.stop.wait())
        load = asyncio.ensure_future(self._load())
        await asyncio.wait([stop, load], return_when=asyncio.FIRST_COMPLETED)
        if not load.done():
            self._state.draining = True
            load.cancel()
            return STOPPED
        loaded = load.result()
        client = EngineClient(loaded.handle)
        self._state.model = self._served(client, loaded)
        self._on_ready(self._state.model)
        death = asyncio.create_task(self._wait_for_death(client))
        await asyncio.wait([stop, death], return_when=asyncio.FIRST_COMPLETED)
        if death.done():
            logger.error("%s; exiting", self._state.health()[1])
            await asyncio.wait([stop], timeout=_DEATH_GRACE_S)
        else:
            await self._drain(loaded, death)
        died = death.done() or client.health().state is HealthState.DEAD
        for task in (stop, death):
            task.cancel()
        await self._close(client)
        return ENGINE_DIED if died else STOPPED

    def _served(self, client: EngineClient, loaded: Loaded) -> ServedModel:
        return ServedModel(
            names=self._settings.model_names,
            client=client,
            text=loaded.text,
            sampling_defaults=effective_defaults(
                loaded.text.generation.sampling(), self._settings.sampling_flags
            ),
            parsers=loaded.parsers,
        )

    async def _wait_for_death(self, client: EngineClient) -> None:
        memory = IdleMemory()
        while client.health().state is not HealthState.DEAD:
            if not self._state.num_open:
                memory.look(self._state.num_closed)
            await asyncio.sleep(_HEALTH_PERIOD_S)

    async def _drain(self, loaded: Loaded, death: asyncio.Task[None]) -> None:
        """Take no new work; let what runs end, as long as that does not take too long."""
        self._state.draining = True
        await asyncio.to_thread(self._host.hooks.engine_stopping, loaded.handle)
        if self._state.num_open:
            logger.info("stopping; %d requests are still running", self._state.num_open)
        idle = asyncio.create_task(self._state.wait_idle())
        hurry = asyncio.create_task(self._signals.hurry.wait())
        await asyncio.wait(
            [idle, hurry, death],
            timeout=self._settings.shutdown_timeout_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        idle.cancel()
        hurry.cancel()

    async def _close(self, client: EngineClient) -> None:
        """End the engine; requests that still run get their error while the web server lives."""
        if self._state.num_open:
            logger.warning("%d requests are cut short", self._state.num_open)
        await client.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._state.wait_idle(), _LAST_WORDS_S)
