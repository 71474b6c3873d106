"""`GET /health`, `/version`, `/metrics` and `/v1/plugins`: the server about itself."""

import os
from collections.abc import Sequence

import msgspec
from litestar import get, route
from litestar.enums import HttpMethod
from litestar.handlers import HTTPRouteHandler

from pegainfer_core import __version__
from pegainfer_core.plugin import PluginRecord
from pegainfer_server.answer.reply import BytesReply
from pegainfer_server.answer.sse import encode_json
from pegainfer_server.api_error import RETRY_UNAVAILABLE_S, unavailable
from pegainfer_server.metrics import (
    CONTENT_TYPE,
    Exposition,
    write_engine_metrics,
    write_process_metrics,
)
from pegainfer_server.protocol.error import ErrorDetail
from pegainfer_server.state import ServerPhase, ServerState


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    """`ok`, `loading`, `stalled`, `draining` or `dead`, with an error for all but the first."""

    status: str
    error: ErrorDetail | None = None


class Version(msgspec.Struct, frozen=True):
    """Version of the server."""

    version: str


class PluginList(msgspec.Struct, frozen=True):
    """Every plugin found at start."""

    plugins: Sequence[PluginRecord]


def status_routes(
    state: ServerState, plugins: Sequence[PluginRecord]
) -> Sequence[HTTPRouteHandler]:
    """The handlers, bound to a server."""

    @route(["/health", "/v1/health"], http_method=[HttpMethod.GET, HttpMethod.HEAD])
    async def health() -> BytesReply:
        phase, words = state.health()
        if phase is ServerPhase.OK:
            return BytesReply(encode_json(Health(phase.value)))
        error = unavailable(words, phase.value).detail
        retry = (b"retry-after", str(RETRY_UNAVAILABLE_S).encode())
        return BytesReply(encode_json(Health(phase.value, error)), status=503, headers=[retry])

    @get("/version")
    async def version() -> BytesReply:
        return BytesReply(encode_json(Version(__version__)))

    @get("/metrics")
    async def metrics() -> BytesReply:
        return BytesReply(scrape(state), content_type=CONTENT_TYPE)

    @get("/v1/plugins")
    async def list_plugins() -> BytesReply:
        return BytesReply(encode_json(PluginList(plugins)))

    return health, version, metrics, list_plugins


def scrape(state: ServerState) -> bytes:
    """All metrics; those of the engine are absent until there is one."""
    out = Exposition({"model_name": state.settings.model_names[0], "engine": "0"})
    out.info("version_info", "Version of the server.", {"version": __version__})
    pids = {"server": os.getpid()}
    if state.model is not None:
        client = state.model.client
        if client.info.pid:
            pids["engine"] = client.info.pid
        write_engine_metrics(out, client.info, client.metrics())
        out.counter(
            "slow_reader_aborts_total",
            "Requests ended because their client did not read.",
            client.num_slow_readers,
        )
    write_process_metrics(out, state.started_unix_s, pids)
    state.metrics.write(out)
    return out.encode()
