"""The web application: routes, errors in one shape, and the guard around everything."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from litestar import Litestar, Response
from litestar.config.app import AppConfig
from litestar.exceptions import (
    HTTPException,
    InternalServerException,
    MethodNotAllowedException,
    NotFoundException,
    ValidationException,
)
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin

from pegainfer_core import __version__
from pegainfer_server.api_error import ApiError, empty_body, internal, invalid
from pegainfer_server.error_shapes import error_body
from pegainfer_server.fault_id import log_fault
from pegainfer_server.guard import Guard
from pegainfer_server.request_id import request_id
from pegainfer_server.routes.adapters import adapter_routes
from pegainfer_server.routes.chat import chat_route
from pegainfer_server.routes.completions import completion_route
from pegainfer_server.routes.dev import reset_prefix_cache_route
from pegainfer_server.routes.messages import message_routes
from pegainfer_server.routes.models import model_routes
from pegainfer_server.routes.page import page_routes
from pegainfer_server.routes.responses import responses_route
from pegainfer_server.routes.status import status_routes
from pegainfer_server.routes.tokenization import tokenization_routes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litestar import Request
    from litestar.datastructures import State
    from litestar.types import ControllerRouterHandler

    from pegainfer_core.plugin import PluginRecord
    from pegainfer_server.state import ServerState

# Litestar's words, and its only sign, for a body that stops half-way: no fault of this server.
_CLIENT_GONE = "client disconnected prematurely"


def create_app(
    state: ServerState,
    *,
    plugins: Sequence[PluginRecord] = (),
    extra_routes: Callable[[AppConfig], Sequence[ControllerRouterHandler]] | None = None,
) -> Guard:
    """Build the application of one server.

    Args:
        state: Shared with whoever loads the engine and sets `state.model`.
        plugins: For `/v1/plugins`.
        extra_routes: Adds plugins' own routes.

    Returns:
        An ASGI application.
    """
    config = AppConfig(
        route_handlers=[
            completion_route(state),
            chat_route(state),
            responses_route(state),
            *message_routes(state),
            *model_routes(state),
            *tokenization_routes(state),
            *status_routes(state, plugins),
            *page_routes(),
        ],
        exception_handlers={Exception: partial(_on_error, state)},
        request_max_body_size=state.settings.max_body_bytes,
        logging_config=None,
        openapi_config=OpenAPIConfig(
            title="pegainfer",
            version=__version__,
            # The other renderers run scripts from elsewhere beside the page and its key.
            render_plugins=[JsonRenderPlugin(path=["/openapi.json", "/"])],
        ),
    )
    if state.settings.lora:
        config.route_handlers.extend(adapter_routes(state))
    if state.settings.dev:
        config.route_handlers.append(reset_prefix_cache_route(state))
    if extra_routes is not None:
        config.route_handlers.extend(extra_routes(config))
    return Guard(Litestar.from_config(config), state)


def _on_error(
    server: ServerState, request: Request[None, None, State], error: Exception
) -> Response[bytes]:
    api_error = _as_api_error(request, error, server.settings.max_body_bytes)
    server.count_refusal(request.method, api_error)
    return Response(
        error_body(api_error, request.url.path, request_id(request.scope)),
        status_code=api_error.status,
        media_type="application/json",
        headers=api_error.headers,
    )


def _as_api_error(
    request: Request[None, None, State], error: Exception, max_body_bytes: int
) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, NotFoundException):
        return ApiError(404, f"there is no {request.url.path} here", code="unknown_path")
    if isinstance(error, MethodNotAllowedException):
        message = f"{request.url.path} does not take {request.method}"
        allow = ", ".join(_methods(request))
        return ApiError(405, message, code="method_not_allowed", allow=allow)
    if isinstance(error, HTTPException) and error.status_code == 413:
        message = f"the request body has more than {max_body_bytes} bytes (--max-body-bytes)"
        return ApiError(413, message, code="body_too_large")
    if isinstance(error, ValidationException) and _lacks_body(error):
        return empty_body()
    if isinstance(error, HTTPException) and error.status_code < 500:
        return invalid(error.detail, None)
    if isinstance(error, InternalServerException) and error.detail == _CLIENT_GONE:
        return invalid("the client went away before its body was whole", None)
    return internal(log_fault(error, request_id(request.scope)))


def _lacks_body(error: ValidationException) -> bool:
    """Litestar hands empty bodies to nobody: to it, an argument is missing."""
    found = error.extra if isinstance(error.extra, list) else []
    return any(isinstance(each, dict) and each.get("source") == "body" for each in found)


def _methods(request: Request[None, None, State]) -> list[str]:
    """What the path of a request takes; paths with parameters here are for reading only."""
    path = request.url.path.rstrip("/")
    known = [route.methods for route in request.app.routes if route.path == path]
    return sorted({method for methods in known for method in methods} or {"GET", "OPTIONS"})
