"""Request bodies to typed requests: strict JSON, clear errors, nothing dropped in silence.

Strict means that `true` and "5" are not integers and that NaN is not JSON.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import re
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from pegainfer_server.api_error import ApiError, empty_body, invalid, unsupported
from pegainfer_server.protocol.structured import FORMS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pegainfer_server.protocol.refused import Neutral

T = TypeVar("T", bound=msgspec.Struct)

MAX_VALUES = 1 << 19
"""Most values in a body, counted by their commas: decoding more would hold up other requests."""
MAX_KEYS = 1 << 18
"""Most keys, counted by their colons."""
MAX_FIELDS = 256

_LARGE_BYTES = 1 << 18
_MAX_LOGGED_NAMES = 256
_MAX_SCANNED_BYTES = 1 << 16
_SHOWN_CHARS = 40
_PATH = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>\$.*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_BYTE = re.compile(r"\(byte (\d+)\)")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_FIELD = re.compile(rb'"(\w{1,64})"\s*:')

logger = logging.getLogger(__name__)
_logged: set[str] = set()


class BodyDecoder(Generic[T]):
    """Decodes the bodies of one endpoint."""

    def __init__(self, model: type[T], refused: Mapping[str, Neutral]) -> None:
        self._decoder = msgspec.json.Decoder(model)
        self._outline = msgspec.json.Decoder(dict[str, msgspec.Raw])
        self._known = frozenset(field.encode_name for field in msgspec.structs.fields(model))
        self._refused = refused

    def decode(self, body: bytes) -> T:
        """Decode a body.

        Raises:
            ApiError: 400 with the JSON path or the field as `param`.
        """
        if body.count(b",") > MAX_VALUES:
            raise invalid(f"the body holds too many values: over {MAX_VALUES} commas", None)
        if body.count(b":") > MAX_KEYS:
            raise invalid(f"the body holds too many keys: over {MAX_KEYS} colons", None)
        with _no_collection(body):
            return self._decode(body)

    def _decode(self, body: bytes) -> T:
        if not body.strip():
            raise empty_body()
        try:
            outline = self._outline.decode(body)
            if len(outline) > MAX_FIELDS:
                raise invalid(f"the body has {len(outline)} fields; at most {MAX_FIELDS}", None)
            request = self._decoder.decode(body)
        except msgspec.ValidationError as error:
            raise wrong_value(str(error)) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _malformed(str(error), body) from error
        except RecursionError as error:
            raise invalid("the body is nested too deeply", None, "json_parse_error") from error
        for name in outline.keys() - self._known:
            self._check_unknown(name, outline[name])
        return request

    def _check_unknown(self, name: str, raw: msgspec.Raw) -> None:
        neutral = self._refused.get(name)
        if neutral is None:
            _log_ignored(name)
            return
        try:
            value: object = msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            value = raw  # A number out of range, or too deep: it asks for something.
        if value is None or any(_same(value, harmless) for harmless in neutral):
            return
        raise unsupported(f"{name} is not supported by this server; leave it out", name)


@contextlib.contextmanager
def _no_collection(body: bytes) -> Iterator[None]:
    """Hold off the collector, which would walk what a large body becomes again and again."""
    if len(body) < _LARGE_BYTES or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _same(value: object, other: object) -> bool:
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _log_ignored(name: str) -> None:
    if name not in _logged and len(_logged) < _MAX_LOGGED_NAMES:
        _logged.add(name)
        logger.warning("ignoring the unknown request field %r (said once)", name[:64])


def wrong_value(text: str, place: str = "$") -> ApiError:
    """The refusal for a `msgspec.ValidationError` with these words, about what lies at `place`."""
    match = _PATH.match(text)
    path = place + ((match["path"] if match else None) or "$")[1:]
    what = match["what"] if match else text
    missing = _MISSING.match(what)
    if missing:
        return invalid(f"{missing[1]} is required", f"{path}.{missing[1]}")
    unknown = _UNKNOWN.fullmatch(what)
    if unknown:  # Structured outputs are the only object whose unknown keys are refused.
        name, known = unknown[1][:_SHOWN_CHARS], ", ".join(FORMS)
        return unsupported(f"{path} has no key {name!r}; it takes one of {known}", path)
    return invalid(f"{what} at {path}", path)


def _malformed(text: str, body: bytes) -> ApiError:
    """Name the field that the bad byte lies in: `NaN` and its like are the usual cause."""
    byte = _BYTE.search(text)
    at = int(byte[1]) if byte else _MAX_SCANNED_BYTES
    field = _field_at(body, at) if at < _MAX_SCANNED_BYTES else None
    if field is None:
        return invalid(f"the body is not valid JSON: {text}", None, "json_parse_error")
    message = f"the value of {field} is not valid JSON: {text}"
    return invalid(message, field, "json_parse_error")


def _field_at(body: bytes, end: int) -> str | None:
    """The field of the outermost object whose value holds the byte `end`, if that is clear.

    All before that byte is valid JSON.
    """
    depth = 0
    field: re.Match[bytes] | None = None
    for token in _TOKEN.finditer(body, 0, end):
        if token[0] in b"{[":
            depth += 1
        elif token[0] in b"}]":
            depth -= 1
        elif depth == 1:
            field = _FIELD.match(body, token.start(), end) or field
    if field is None or depth < 1:
        return None
    between = depth == 1 and body.find(b",", field.end(), end) >= 0
    return None if between else field[1].decode()
