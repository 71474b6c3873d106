"""Asks a server what it serves, before load is put on it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from pegainfer_bench.client.answer import error_text
from pegainfer_bench.client.connection import Connection, ConnectionLost
from pegainfer_core.plugin import CommandFault

if TYPE_CHECKING:
    from pegainfer_bench.client.target import Target

_POLL_S = 0.25
_ANSWER_TIMEOUT_S = 10.0


class _Card(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Card]


class _NotReady(Exception):
    """Worded for the user."""


async def served_model(target: Target, wanted: str | None, ready_timeout_s: float) -> str:
    """The name of the model to ask for.

    Args:
        target: The server.
        wanted: What the user named; None takes the first.
        ready_timeout_s: How long to wait for a server that is not up yet.

    Raises:
        CommandFault: The server cannot be reached, or does not serve that model.
    """
    deadline_s = time.monotonic() + ready_timeout_s
    while True:
        try:
            status, body = await _get(target, "/v1/models")
            break
        except _NotReady as error:
            if time.monotonic() >= deadline_s:
                raise CommandFault(
                    f"{target.url} {error}; is the server up? --ready-check-timeout S waits for it"
                ) from error
        await asyncio.sleep(_POLL_S)
    return _choose(target, wanted, status, body)


def _choose(target: Target, wanted: str | None, status: int, body: bytes) -> str:
    if status in (401, 403):
        raise CommandFault(
            f"{target.url} asks for an API key (HTTP {status}); put it into OPENAI_API_KEY"
        )
    try:
        names = [card.id for card in msgspec.json.decode(body, type=_Models).data]
    except (msgspec.DecodeError, UnicodeDecodeError):
        names = []
    if status != 200 or not names:
        # Not every server has this route; one that names nothing is asked for what the user says.
        if wanted is not None:
            return wanted
        raise CommandFault(
            f"{target.url}/v1/models names no model (HTTP {status}: {error_text(body)}); "
            "give --model NAME, or another --base-url"
        )
    if wanted is not None and wanted not in names:
        raise CommandFault(
            f"--model {wanted} is not served by {target.url}; it serves {', '.join(names)}"
        )
    return wanted or names[0]


async def _get(target: Target, path: str) -> tuple[int, bytes]:
    body = bytearray()
    try:
        async with asyncio.timeout(_ANSWER_TIMEOUT_S):
            connection = await Connection.open(target)
            try:
                request = target.request("GET", path)
                status = await connection.exchange(request, lambda data, _: body.extend(data))
            finally:
                connection.close()
    except TimeoutError as error:
        raise _NotReady(f"did not answer within {_ANSWER_TIMEOUT_S:g} s") from error
    except OSError as error:
        raise _NotReady(f"cannot be reached ({error})") from error
    except ConnectionLost as error:
        raise _NotReady(f"gave no answer ({error})") from error
    if status == 503:
        raise _NotReady(f"is not ready (HTTP 503: {error_text(bytes(body))})")
    return status, bytes(body)
