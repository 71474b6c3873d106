"""Framing of server-sent events: LF only, because hand-written clients split on an empty line."""

from __future__ import annotations

from typing import Final

import msgspec

START: Final = b"data: "
END: Final = b"\n\n"
DONE: Final = b"data: [DONE]\n\n"
PING: Final = b": ping\n\n"

HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)

_encoder = msgspec.json.Encoder()
encode_json = _encoder.encode


def raw_event(json: bytes) -> bytes:
    """One event holding encoded JSON."""
    return START + json + END


def event(payload: msgspec.Struct) -> bytes:
    """One event holding a JSON object."""
    return raw_event(encode_json(payload))


def split_around_text(payload: msgspec.Struct, marker: str) -> tuple[bytes, bytes]:
    """The event's bytes before and after the JSON string `marker`, which occurs in it once.

    Most events of a stream differ in one text only; what surrounds it is encoded once a stream.
    """
    return split_once(event(payload), marker)


def split_once(encoded: bytes, marker: str) -> tuple[bytes, bytes]:
    """Encoded JSON before and after the JSON string `marker`, which occurs in it once."""
    head, _, tail = encoded.partition(encode_json(marker))
    return head, tail


def named_event(name: str, payload: msgspec.Struct) -> bytes:
    """One event that has a name beside its JSON object."""
    return b"event: " + name.encode() + b"\n" + event(payload)
