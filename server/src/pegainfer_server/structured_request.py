"""Which form a request wants its answer to have."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from pegainfer_core.contract import StructuredOutput
from pegainfer_core.text import MarkedReasoning
from pegainfer_server.api_error import invalid, unsupported
from pegainfer_server.protocol.structured import FORMS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pegainfer_server.prompt import Prompt
    from pegainfer_server.protocol.sampling_fields import SamplingFields
    from pegainfer_server.protocol.structured import ResponseFormat, StructuredOutputs
    from pegainfer_server.served_model import ServedModel

MAX_SCHEMA_CHARS = 1 << 17
"""As in the contract; a larger schema is not even written as text."""
_MAX_VALUES = 40_000
_SHOWN_CHARS = 40
_NOT_OFFERED = (
    "structural_tag",
    "whitespace_pattern",
    "disable_fallback",
    "disable_any_whitespace",
)
"""Options of other servers that clients send along with values that ask for nothing."""


class Wish(NamedTuple):
    """A form, and the field it came in."""

    form: StructuredOutput
    field: str


def structured_wish(request: SamplingFields) -> Wish | None:
    """The form that the fields ask for, if any.

    Raises:
        ApiError: 400, they ask for two, or for something that is none.
    """
    wishes = list(_wishes(request))
    if len(wishes) > 1:
        names = [wish.field for wish in wishes]
        raise contradiction(*names[:2])
    return wishes[0] if wishes else None


def contradiction(one: str, other: str) -> Exception:
    """The refusal of two fields that each say what an answer may be."""
    return invalid(f"{one} and {other} contradict each other; send one of them", other)


def behind_reasoning(
    form: StructuredOutput, model: ServedModel, prompt: Prompt
) -> StructuredOutput:
    """The form for what follows the model's reasoning, if there is or may be any.

    Raises:
        ApiError: 400, the prompt has begun reasoning whose end is no token.
    """
    make = model.parsers.reasoning
    if make is None or prompt.text is None:
        return form
    parser = make(prompt.text, prompt.continued)
    if not isinstance(parser, MarkedReasoning):
        return form
    start_id = model.tokenizer.token_to_id(parser.start_tag)
    end_id = model.tokenizer.token_to_id(parser.end_tag)
    if parser.in_reasoning:
        if end_id is None:
            raise unsupported(
                f"the prompt begins reasoning, and this model has no token for {parser.end_tag}, "
                "behind which the form could begin; switch reasoning off",
                "response_format",
            )
        return replace(form, reasoning_end_id=end_id)
    closed = prompt.text.rstrip().endswith(parser.end_tag)
    sources = model.text.chat_template.sources.values()
    reasons = any(parser.start_tag in source for source in sources)
    if None in (start_id, end_id) or closed or prompt.continued or not reasons:
        return form
    return replace(form, reasoning_start_id=start_id, reasoning_end_id=end_id)


def _wishes(request: SamplingFields) -> Iterator[Wish]:
    if request.response_format is not None:
        form = _response_format(request.response_format)
        if form is not None:
            yield Wish(form, "response_format")
    given = request.structured_outputs
    if given is not None:
        yield _structured_outputs(given)
    for name in ("json", "regex", "choice", "grammar"):
        value = getattr(request, f"guided_{name}")
        if value is not None:
            yield _wish(name, value, f"guided_{name}")


def _structured_outputs(given: StructuredOutputs) -> Wish:
    for name in _NOT_OFFERED:
        if getattr(given, name) not in (None, False):
            raise unsupported(
                f"structured_outputs.{name} is not supported by this server; leave it out",
                "structured_outputs",
            )
    inside = [(name, getattr(given, name)) for name in FORMS]
    # A schema may be false; json_object false asks for nothing.
    found = [
        (name, value)
        for name, value in inside
        if value is not None and (name, value) != ("json_object", False)
    ]
    if len(found) != 1:
        raise invalid(
            f"structured_outputs must have exactly one of {', '.join(FORMS)}, "
            f"not {', '.join(name for name, _ in found) or 'none'}",
            "structured_outputs",
        )
    ((name, value),) = found
    return _wish(name, value, "structured_outputs")


def _response_format(given: ResponseFormat) -> StructuredOutput | None:
    if given.type not in ("text", "json_object", "json_schema"):
        raise unsupported(
            f"response_format.type must be text, json_object or json_schema, not "
            f"{given.type[:_SHOWN_CHARS]!r}",
            "response_format",
        )
    if given.type != "json_object" and given.top_schema is not None:
        raise invalid("response_format.schema needs type json_object", "response_format")
    if given.type != "json_schema" and given.json_schema is not None:
        raise invalid("response_format.json_schema needs type json_schema", "response_format")
    if given.type == "text":
        return None
    if given.type == "json_object":
        if given.top_schema is None:
            return StructuredOutput(kind="json_object")
        return _json_form(given.top_schema, "response_format.schema", strict=True)
    inner = given.json_schema
    if inner is None or inner.json_schema is None:
        raise invalid("response_format.json_schema.schema is required", "response_format")
    field = "response_format.json_schema.schema"
    return _json_form(inner.json_schema, field, strict=inner.strict is not False)


def _wish(name: str, value: object, field: str) -> Wish:
    if name == "json_object":
        return Wish(StructuredOutput(kind="json_object"), field)
    if name == "json":
        return Wish(_json_form(value, field, strict=True), field)
    if name == "choice":
        return Wish(StructuredOutput(kind="choice", text=json_text(value, field)), field)
    if name == "regex":
        return Wish(StructuredOutput(kind="regex", text=str(value)), field)
    return Wish(StructuredOutput(kind="grammar", text=str(value)), field)


def _json_form(schema: object, field: str, *, strict: bool) -> StructuredOutput:
    text = schema if isinstance(schema, str) else json_text(schema, field)
    return StructuredOutput(kind="json_schema", text=text, strict=strict)


def json_text(value: object, field: str) -> str:
    """The JSON text of a part of a request, unless it is long.

    Raises:
        ApiError: 400, it is too large.
    """
    if _is_large(value):
        raise invalid(
            f"{field} is too large: at most {MAX_SCHEMA_CHARS} characters and {_MAX_VALUES} values",
            field,
        )
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError as error:
        raise invalid(f"{field} is nested too deeply", field) from error


def _is_large(value: object) -> bool:
    """Looked at no further than to the limit: the event loop has others to serve."""
    num_values = num_chars = 0
    left = [value]
    while left:
        item = left.pop()
        num_values += 1
        if isinstance(item, str):
            num_chars += len(item)
        elif isinstance(item, dict):
            num_chars += sum(map(len, item))
            left += item.values()
        elif isinstance(item, list):
            left += item
        if num_values + len(left) > _MAX_VALUES or num_chars > MAX_SCHEMA_CHARS:
            return True
    return False
