"""The outermost layer of the application: request ids, access rules, content types, CORS.

Everything behind it, known path or not, is guarded alike.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from litestar.enums import ScopeType

from pegainfer_server.access import AccessRules
from pegainfer_server.answer.reply import BytesReply
from pegainfer_server.api_error import ApiError, invalid
from pegainfer_server.error_shapes import error_body, id_headers
from pegainfer_server.request_id import HEADER, open_request_id, request_id
from pegainfer_server.routes.page import PAGE_PATHS

if TYPE_CHECKING:
    from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

    from pegainfer_server.state import ServerState

#: OpenAI's and Anthropic's clients describe themselves in these.
_STAINLESS = (
    b"arch",
    b"helper-method",
    b"lang",
    b"os",
    b"package-version",
    b"retry-count",
    b"runtime",
    b"runtime-version",
    b"timeout",
)
#: Those that clients in browsers send. A star would not cover `authorization`.
_ALLOWED_HEADERS = b", ".join(
    (
        b"authorization",
        b"content-type",
        b"x-api-key",
        b"x-request-id",
        b"traceparent",
        b"tracestate",
        b"anthropic-version",
        b"anthropic-beta",
        b"anthropic-dangerous-direct-browser-access",
        b"openai-organization",
        b"openai-project",
        *(b"x-stainless-" + name for name in _STAINLESS),
    )
)
_PREFLIGHT_HEADERS = (
    (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
    (b"access-control-allow-headers", _ALLOWED_HEADERS),
    (b"access-control-max-age", b"600"),
)

_CLIENT_GONE = 499

access_log = logging.getLogger("pegainfer_server.access")


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self._app = app
        self._rules = AccessRules(state.settings, PAGE_PATHS)
        self._tracing = state.tracing
        self._responses = state.metrics.responses
        self._count_refusal = state.count_refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request and hand it on."""
        if scope["type"] == ScopeType.HTTP:
            await self._http(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000, "reason": None})

    async def _http(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        id_is_usable = open_request_id(scope, headers.get(HEADER))
        cors = self._rules.cors_headers(headers)
        started_s = time.monotonic()
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._responses[status] += 1
                public_id = request_id(scope).encode("latin-1")
                own = [(HEADER, public_id), *id_headers(scope["path"], public_id), *cors]
                message["headers"] = [*message["headers"], *own]
                _log_access(scope, status, started_s)
            await send(message)

        trace = None
        if self._tracing is not None and scope["method"] == "POST":
            trace = self._tracing.begin(scope, headers)
        try:
            await self._checked(scope, headers, id_is_usable, receive, answer)
        finally:
            if trace is not None:
                trace.end(status or _CLIENT_GONE)
        if not status:
            self._responses[_CLIENT_GONE] += 1
            _log_access(scope, _CLIENT_GONE, started_s)

    async def _checked(
        self,
        scope: HTTPScope,
        headers: dict[bytes, bytes],
        id_is_usable: bool,
        receive: Receive,
        send: Send,
    ) -> None:
        try:
            self._check(scope, headers, id_is_usable)
        except ApiError as error:
            self._count_refusal(scope["method"], error)
            await error_reply(error, scope)(scope, receive, send)
            return
        if b"access-control-request-method" in headers and scope["method"] == "OPTIONS":
            await BytesReply(b"", status=200, headers=_PREFLIGHT_HEADERS)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check(self, scope: HTTPScope, headers: dict[bytes, bytes], id_is_usable: bool) -> None:
        self._rules.check(scope["method"], scope["path"], headers)
        if not id_is_usable:
            raise invalid(
                "X-Request-Id takes 1 to 128 visible ASCII characters and no spaces",
                "X-Request-Id",
            )
        if scope["method"] == "POST":
            _check_content_type(headers)


def error_reply(error: ApiError, scope: HTTPScope) -> BytesReply:
    """The response an error becomes."""
    headers = [(name.encode(), value.encode()) for name, value in error.headers.items()]
    body = error_body(error, scope["path"], request_id(scope))
    return BytesReply(body, status=error.status, headers=headers)


def _check_content_type(headers: dict[bytes, bytes]) -> None:
    """Pages may send other types to foreign servers unasked; no type at all is harmless.

    So is a type of no body: some clients name one with every POST.
    """
    value = headers.get(b"content-type")
    has_body = b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
    if value is None or not has_body:
        return
    kind = value.split(b";")[0].strip().lower()
    if kind != b"application/json":
        raise ApiError(
            415,
            f"the body must be application/json, not {kind.decode('latin-1')[:60]!r}",
            code="unsupported_media_type",
        )


def _log_access(scope: HTTPScope, status: int, started_s: float) -> None:
    if not access_log.isEnabledFor(logging.INFO):
        return
    # As it was sent: what percent signs stand for could be the end of a log line.
    path = scope["raw_path"].decode("latin-1")
    duration_ms = round((time.monotonic() - started_s) * 1e3)
    fields = {
        "request_id": request_id(scope),
        "method": scope["method"],
        "path": path,
        "status": status,
        "duration_ms": duration_ms,
    }
    access_log.info(
        "%s %s %d %d ms id=%s",
        scope["method"],
        path,
        status,
        duration_ms,
        request_id(scope),
        extra={"fields": fields},
    )
