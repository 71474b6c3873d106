"""The listening socket, taken before anything slow begins."""

from __future__ import annotations

import errno
import socket

from pegainfer_core.plugin import CommandFault

_BACKLOG = 2048


def bind(host: str, port: int) -> socket.socket:
    """Listen on a TCP port. Connections wait until somebody accepts them.

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
        sock.bind(address)
        # Only now is the port ours: one that is bound alone can still be bound by others.
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise _fault(host, port, error) from error
    return sock


def url(sock: socket.socket) -> str:
    """Where a listening socket can be reached."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _fault(host: str, port: int, error: OSError) -> CommandFault:
    if error.errno == errno.EADDRINUSE:
        return CommandFault(
            f"port {port} of {host} is in use; stop what listens there or choose another --port"
        )
    if error.errno == errno.EACCES:
        return CommandFault(f"no permission to listen on port {port}; choose --port above 1023")
    return CommandFault(f"cannot listen on {host} port {port}: {error.strerror}")
