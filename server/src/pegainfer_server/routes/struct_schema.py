"""JSON schemas of structs as msgspec states them: the framework's own leave constraints out."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec
from litestar.openapi.spec import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping

_REF = "#/$defs/"


class StructSchema(Schema):
    """The schema of a struct, what it refers to written out in place."""

    def __init__(self, model: type[msgspec.Struct]) -> None:
        super().__init__()
        self._model = model

    def to_schema(self) -> dict[str, object]:
        """As JSON; made anew each time, for it is asked for seldom."""
        whole = msgspec.json.schema(self._model, schema_hook=_any_value)
        definitions = whole.pop("$defs")
        return cast("dict[str, object]", _inlined(whole, definitions))


def _any_value(kind: type) -> dict[str, object]:
    if kind is object:
        return {"description": "Any JSON value."}
    raise NotImplementedError


def _inlined(value: object, definitions: Mapping[str, object]) -> object:
    if isinstance(value, list):
        return [_inlined(item, definitions) for item in value]
    if not isinstance(value, dict):
        return value
    ref = value.get("$ref")
    if isinstance(ref, str):
        return _inlined(definitions[ref.removeprefix(_REF)], definitions)
    return {key: _inlined(item, definitions) for key, item in value.items()}
