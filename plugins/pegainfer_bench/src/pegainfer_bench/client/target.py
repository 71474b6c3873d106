"""Where a server is, from its URL."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from pegainfer_core.plugin import CommandFault

if TYPE_CHECKING:
    from collections.abc import Mapping


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A server.

    Attributes:
        host: To connect to.
        port: Likewise.
        tls: Whether to speak TLS.
        prefix: Path that all of its paths begin with, without a slash at the end.
        headers: Sent with every request.
    """

    host: str
    port: int
    tls: bool = False
    prefix: str = ""
    headers: dict[str, str] = {}

    @classmethod
    def parse(cls, url: str, headers: Mapping[str, str]) -> Target:
        """Read a base URL.

        Raises:
            CommandFault: It is none.
        """
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError as error:
            raise CommandFault(f"--base-url {url}: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise CommandFault(f"--base-url {url}: expected http://HOST:PORT or https://HOST:PORT")
        tls = parts.scheme == "https"
        return cls(
            host=parts.hostname,
            port=port or (443 if tls else 80),
            tls=tls,
            prefix=parts.path.rstrip("/"),
            headers=dict(headers),
        )

    @property
    def url(self) -> str:
        """For people."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.prefix}"

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The bytes of an HTTP/1.1 request for a path below the prefix."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = [f"{method} {self.prefix}{path} HTTP/1.1", f"Host: {host}:{self.port}"]
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + body
