"""HTTP by hand: what libraries hide (bytes, half-closed sockets, odd headers) in plain sight."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from types import TracebackType


class RawConnection:
    """One keep-alive connection."""

    def __init__(self, address: tuple[str, int], receive_bytes: int | None = None) -> None:
        self.sock = socket.socket()
        if receive_bytes is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.sock.settimeout(20)
        try:
            self.sock.connect(address)
        except OSError:
            self.sock.close()
            raise
        self.address = address

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.sock.close()

    def send(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        lines = {"Host": f"{self.address[0]}:{self.address[1]}"}
        if body:
            lines["Content-Length"] = str(len(body))
            lines["Content-Type"] = "application/json"
        lines |= headers or {}
        head = f"{method} {path} HTTP/1.1\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
        self.sock.sendall(head.encode("latin-1") + b"\r\n" + body)

    def post(self, path: str, fields: object) -> None:
        self.send("POST", path, json.dumps(fields).encode())

    def read_head(self) -> tuple[int, dict[str, str]]:
        """Status and headers, names in lower case; nothing of the body is taken."""
        data = b""
        while not data.endswith(b"\r\n\r\n"):
            byte = self.sock.recv(1)
            assert byte, f"closed after {data!r}"
            data += byte
        status, *lines = data.decode("latin-1").rstrip("\r\n").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        return int(status.split()[1]), headers

    def read_chunk(self) -> bytes:
        """One chunk of a chunked body; b"" is the last one."""
        size = b""
        while not size.endswith(b"\r\n"):
            byte = self.sock.recv(1)
            assert byte, "the connection was closed inside a body"
            size += byte
        return self._exactly(int(size, 16) + 2)[:-2]

    def read_chunks(self) -> list[bytes]:
        """The rest of a chunked body."""
        chunks = []
        while chunk := self.read_chunk():
            chunks.append(chunk)
        return chunks

    def read_body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding") == "chunked":
            return b"".join(self.read_chunks())
        return self._exactly(int(headers["content-length"]))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.sock.recv(size - len(data))
            assert part, "the connection was closed inside a body"
            data += part
        return data
