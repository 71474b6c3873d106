"""Routes that only `--dev` adds."""

from litestar import Request, post
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler

from pegainfer_core.contract import EngineError
from pegainfer_server.answer.reply import BytesReply
from pegainfer_server.api_error import invalid, unavailable
from pegainfer_server.state import ServerState


def reset_prefix_cache_route(state: ServerState) -> HTTPRouteHandler:
    """The handler, bound to a server."""

    @post("/reset_prefix_cache", status_code=200)
    async def reset_prefix_cache(request: Request[None, None, State]) -> BytesReply:
        tier = request.query_params.get("tier", "device")
        if tier not in ("device", "all"):
            raise invalid(f"tier must be device or all, not {tier[:40]!r}", "tier")
        client = state.serving().client
        try:
            client.reset_prefix_cache(device_only=tier == "device")
        except EngineError as error:
            raise unavailable(f"the engine is dead: {error}", "dead") from error
        return BytesReply(b'{"status":"ok"}')

    return reset_prefix_cache
