"""Command-line flags as the fields of a Struct. The rules stand in `command`. Parses nothing."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import msgspec.inspect as inspect

if TYPE_CHECKING:
    from collections.abc import Mapping


class Flag(NamedTuple):
    """One field of a Struct as a flag.

    Attributes:
        field: The field's name.
        annotation: Its type, for conversion.
        help: Its description.
        choices: The values of a Literal, else empty.
        is_bool: Takes no value; `--no-x` switches it off.
        is_list: May be given several times.
        is_required: The field has no default.
        is_positional: May also be given without the flag.
        metavar: How the help names its value.
    """

    field: str
    annotation: object
    help: str
    choices: tuple[object, ...]
    is_bool: bool
    is_list: bool
    is_required: bool
    is_positional: bool
    metavar: str

    @property
    def name(self) -> str:
        """With dashes, such as `--max-model-len`."""
        return "--" + self.field.replace("_", "-")

    @property
    def spellings(self) -> tuple[str, ...]:
        """All names the flag answers to."""
        negated = "--no-" + self.name.removeprefix("--")
        return (self.name, negated) if self.is_bool else (self.name,)


def flags_of(options: type[msgspec.Struct]) -> list[Flag]:
    """The flags of a Struct, in the order of its fields.

    Raises:
        TypeError: A field's type has no spelling on a command line.
    """
    return list(_flags_of(options))


@cache
def _flags_of(options: type[msgspec.Struct]) -> tuple[Flag, ...]:
    """Once for each Struct: inspecting one takes milliseconds, and a launch asks several times."""
    info = inspect.type_info(options)
    assert isinstance(info, inspect.StructType)
    annotations = {field.name: field.type for field in msgspec.structs.fields(options)}
    return tuple(_flag(options, field, annotations[field.name]) for field in info.fields)


def _flag(options: type[msgspec.Struct], field: inspect.Field, annotation: object) -> Flag:
    kind, description, extra = _unwrap(field.type)
    is_list = isinstance(kind, inspect.ListType)
    item = _unwrap(kind.item_type)[0] if isinstance(kind, inspect.ListType) else kind
    if not isinstance(item, _SCALARS):
        raise TypeError(f"{options.__name__}.{field.name} cannot be a flag: {annotation}")
    choices = tuple(item.values) if isinstance(item, inspect.LiteralType) else ()
    if choices:
        choices = tuple(msgspec.to_builtins(choices))
    return Flag(
        field=field.name,
        annotation=annotation,
        help=_help(description, field),
        choices=choices,
        is_bool=isinstance(item, inspect.BoolType),
        is_list=is_list,
        is_required=field.required,
        is_positional=bool(extra.get("positional")),
        metavar=str(extra.get("metavar") or _METAVARS.get(type(item), "VALUE")),
    )


_SCALARS = (
    inspect.BoolType,
    inspect.IntType,
    inspect.FloatType,
    inspect.StrType,
    inspect.LiteralType,
)
_METAVARS: dict[type, str] = {inspect.IntType: "N", inspect.FloatType: "X", inspect.StrType: "TEXT"}


def _unwrap(kind: inspect.Type) -> tuple[inspect.Type, str, Mapping[str, object]]:
    """Strip Annotated and `| None`; return the rest, its description and its extra metadata."""
    description = ""
    extra: dict[str, object] = {}
    while True:
        if isinstance(kind, inspect.Metadata):
            description = description or (kind.extra_json_schema or {}).get("description", "")
            extra = {**(kind.extra or {}), **extra}
            kind = kind.type
        elif isinstance(kind, inspect.UnionType):
            others = [t for t in kind.types if not isinstance(t, inspect.NoneType)]
            if len(others) != 1:
                return kind, description, extra
            kind = others[0]
        else:
            return kind, description, extra


def _help(description: str, field: inspect.Field) -> str:
    default = field.default
    if default is msgspec.NODEFAULT or default is None or default is False:
        return description
    return f"{description} (default: {'on' if default is True else default})".strip()
