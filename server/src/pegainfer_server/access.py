"""Who may call: API keys, the Host header and the Origin of web pages. Knows no route's meaning."""

from __future__ import annotations

import hmac
import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pegainfer_server.api_error import ApiError
from pegainfer_server.settings import digest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pegainfer_server.settings import ServerSettings

UNKEYED_PATHS = frozenset({"/health", "/v1/health"})
_READING = ("GET", "HEAD")
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_ALL_ORIGINS = "*"

Headers = "Mapping[bytes, bytes]"
"""Lower-case names; the last of several equal names."""


class AccessRules:
    """Decides over a request's headers, before anything else of it is read."""

    def __init__(self, settings: ServerSettings, unkeyed_files: Collection[str] = ()) -> None:
        """Take the rules.

        Args:
            settings: Of the server.
            unkeyed_files: Paths that may be read without a key.
        """
        self._unkeyed_files = unkeyed_files
        self._digests = settings.key_digests
        self._origins = settings.cors_origins
        self._hosts: frozenset[str] | None = None
        if is_loopback(settings.host):
            # A page can make its own name resolve to a loopback address, but not send ours.
            self._hosts = _LOOPBACK_NAMES | {settings.host.lower()} | settings.allowed_hosts

    def check(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> None:
        """Let the request pass or not.

        Raises:
            ApiError: 403 for a foreign Host or Origin, 401 without a valid key.
        """
        self._check_host(headers.get(b"host", b"").decode("latin-1"))
        self._check_origin(headers)
        if self._digests and not self._is_unkeyed(method, path):
            self._check_key(headers)

    def _is_unkeyed(self, method: str, path: str) -> bool:
        if method == "OPTIONS" or path.rstrip("/") in UNKEYED_PATHS:
            return True
        return method in _READING and path in self._unkeyed_files

    def cors_headers(self, headers: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
        """Headers that let an allowed foreign page read the response, errors included."""
        origin = headers.get(b"origin")
        if origin is None or not self._origins or self._is_same_origin(headers):
            return []
        every = _ALL_ORIGINS in self._origins
        if not every and not self._is_allowed(origin):
            return [(b"vary", b"Origin")]
        return [
            (b"access-control-allow-origin", b"*" if every else origin),
            (b"access-control-expose-headers", b"x-request-id, request-id, retry-after"),
            (b"vary", b"Origin"),
        ]

    def _check_host(self, host: str) -> None:
        if self._hosts is not None and host and _host_name(host) not in self._hosts:
            raise _forbidden(
                f"this server does not answer to the Host {host[:100]!r}; "
                "start it with --allowed-host to allow that name"
            )

    def _check_origin(self, headers: Mapping[bytes, bytes]) -> None:
        origin = headers.get(b"origin", b"")
        if not origin or _ALL_ORIGINS in self._origins or self._is_allowed(origin):
            return
        if not self._is_same_origin(headers):
            raise _forbidden(
                f"web pages from {origin.decode('latin-1')[:100]!r} may not call this server; "
                "start it with --cors-origin to allow them"
            )

    def _is_allowed(self, origin: bytes) -> bool:
        return origin.decode("latin-1").lower() in self._origins

    def _is_same_origin(self, headers: Mapping[bytes, bytes]) -> bool:
        origin = urlsplit(headers.get(b"origin", b"").decode("latin-1").lower())
        host = headers.get(b"host", b"").decode("latin-1").lower()
        return bool(host) and origin.scheme in ("http", "https") and origin.netloc == host

    def _check_key(self, headers: Mapping[bytes, bytes]) -> None:
        scheme, _, bearer = headers.get(b"authorization", b"").partition(b" ")
        keys = [bearer] if scheme.lower() == b"bearer" else []
        if b"x-api-key" in headers:  # What clients of Anthropic's API send.
            keys.append(headers[b"x-api-key"])
        given = [digest(key.strip()) for key in keys]
        # Every digest is compared with every other, so that time tells nothing of the keys.
        matches = [hmac.compare_digest(one, known) for one in given for known in self._digests]
        if not any(matches):
            raise ApiError(
                401,
                "a valid API key is needed: send it as Authorization: Bearer KEY or as x-api-key",
                type="authentication_error",
                code="invalid_api_key",
            )


def _forbidden(message: str) -> ApiError:
    return ApiError(403, message, code="forbidden")


def _host_name(host: str) -> str:
    """The name in a Host header, without port and brackets."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is one that only this machine reaches."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
