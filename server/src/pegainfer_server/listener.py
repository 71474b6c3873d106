"""The listening socket, taken before anything slow begins, and what its connections inherit."""

from __future__ import annotations

import errno
import socket

from pegainfer_core.plugin import CommandFault

_BACKLOG = 2048
#: What a client that does not read can leave in the kernel, which by itself would allow megabytes.
_SEND_BUFFER_BYTES = 256 << 10


def bind(host: str, port: int, *, stall_timeout_s: float = 0.0) -> socket.socket:
    """Listen on a TCP port. Connections wait until somebody accepts them.

    Args:
        host: Address of this machine.
        port: 0 for a free one.
        stall_timeout_s: How long a connection may have something to send of which its peer takes
            nothing; then it breaks. 0 for the system's patience, which is endless.

    Raises:
        CommandFault: The port is taken or the address cannot be listened on.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise CommandFault(f"--host {host} is not an address of this machine: {error}") from error
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted connections inherit it: no token may wait until the one before is acknowledged.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        # Only the kernel knows when a peer last took something; the application sees its own
        # buffers fill up much later, and meanwhile the request holds pages that others wait for.
        if stall_timeout_s and hasattr(socket, "TCP_USER_TIMEOUT"):
            timeout_ms = round(stall_timeout_s * 1e3)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)
        sock.bind(address)
        # Only now is the port ours: one that is bound alone can still be bound by others.
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise _fault(host, port, error) from error
    return sock


def url(sock: socket.socket, *, tls: bool = False) -> str:
    """Where a listening socket can be reached."""
    host, port = sock.getsockname()[:2]
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _fault(host: str, port: int, error: OSError) -> CommandFault:
    if error.errno == errno.EADDRINUSE:
        return CommandFault(
            f"port {port} of {host} is in use; stop what listens there or choose another --port"
        )
    if error.errno == errno.EACCES:
        return CommandFault(f"no permission to listen on port {port}; choose --port above 1023")
    return CommandFault(f"cannot listen on {host} port {port}: {error.strerror}")
