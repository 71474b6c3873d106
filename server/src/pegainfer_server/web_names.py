"""Origins and host names of the command line, in the form in which requests carry them.

What no request could match would be a flag without effect.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Final

from pegainfer_core.plugin import CommandFault

if TYPE_CHECKING:
    from collections.abc import Iterable

_ORIGIN: Final = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://[^\s/?#@\\]+")
_ANY: Final = ("*", "null")
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}
_HOST: Final = re.compile(r"[^\s/?#@\\:\[\]]*[^\s/?#@\\:\[\].]")


def known_origins(given: Iterable[str]) -> frozenset[str]:
    """Origins of `--cors-origin` as browsers send them.

    Raises:
        CommandFault: One is no origin.
    """
    return frozenset(_origin(word) for word in given)


def known_hosts(given: Iterable[str]) -> frozenset[str]:
    """Names of `--allowed-host`.

    Raises:
        CommandFault: One is no name.
    """
    return frozenset(_host(word) for word in given)


def _origin(word: str) -> str:
    origin = word.lower().removesuffix("/")
    if origin in _ANY:
        return origin
    match = _ORIGIN.fullmatch(origin)
    if match is None:
        raise CommandFault(
            f"--cors-origin {word}: no page has this origin; give scheme, host and, unless it is "
            "the usual one, port, such as https://ui.example:8443, or * for every page"
        )
    # Browsers leave the usual port out.
    return origin.removesuffix(_DEFAULT_PORTS.get(match["scheme"], "/"))


def _host(word: str) -> str:
    host = word.lower()
    if _HOST.fullmatch(host) is None and not _is_address(host):
        raise CommandFault(
            f"--allowed-host {word}: no request has this host; give the name alone, without "
            "scheme, port or path, such as llm.example"
        )
    return host


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
