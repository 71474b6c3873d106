"""`GET /`: the status and chat page. Static files without data: what they show, they ask for."""

from collections.abc import Sequence
from pathlib import Path

from litestar import Request, route
from litestar.datastructures import State
from litestar.enums import HttpMethod
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler

from pegainfer_server.answer.reply import BytesReply

_FOLDER = Path(__file__).parent.parent / "static"
_SCRIPT = b"text/javascript; charset=utf-8"
_KINDS = {
    "icon.svg": b"image/svg+xml",
    "style.css": b"text/css; charset=utf-8",
    "api.js": _SCRIPT,
    "chat.js": _SCRIPT,
    "main.js": _SCRIPT,
    "metrics.js": _SCRIPT,
    "status.js": _SCRIPT,
}
_METHODS = [HttpMethod.GET, HttpMethod.HEAD]
#: Nothing from elsewhere, nothing inline, no frames: text of a model can never become code here.
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
)

PAGE_PATHS = frozenset({"/", *(f"/page/{name}" for name in _KINDS)})
"""All files of the page; whoever may see the server may read them."""


def page_routes() -> Sequence[HTTPRouteHandler]:
    """The handlers."""

    @route("/", http_method=_METHODS, include_in_schema=False)
    async def show_page() -> BytesReply:
        return _file("index.html", b"text/html; charset=utf-8")

    @route("/page/{name:str}", http_method=_METHODS, include_in_schema=False)
    async def show_file(request: Request[None, None, State]) -> BytesReply:
        name = str(request.path_params["name"])
        if name not in _KINDS:
            raise NotFoundException
        return _file(name, _KINDS[name])

    return show_page, show_file


def _file(name: str, kind: bytes) -> BytesReply:
    # Read anew each time: who opens the page waits a moment, who never does pays nothing.
    return BytesReply((_FOLDER / name).read_bytes(), content_type=kind, headers=_HEADERS)
