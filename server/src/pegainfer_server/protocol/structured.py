"""Fields that say which form an answer must have. Which of them count is resolved elsewhere."""

import msgspec
from msgspec import field

JsonSchema = str | dict[str, object] | bool
"""A schema, or its JSON text."""

FORMS = ("json", "regex", "choice", "grammar", "json_object")
"""Keys of `StructuredOutputs` that each ask for a form."""


class JsonSchemaFormat(msgspec.Struct, frozen=True, kw_only=True):
    """A schema by which an answer is made.

    Attributes:
        name: Without meaning here.
        description: Without meaning here.
        json_schema: The schema.
        strict: With false, keywords that cannot be enforced are ignored instead of refused.
    """

    name: str | None = None
    description: str | None = None
    json_schema: dict[str, object] | bool | None = field(name="schema", default=None)
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's way to ask for a form.

    Attributes:
        type: "text", "json_object" or "json_schema".
        json_schema: Only with "json_schema".
        top_schema: With "json_object", a schema for the object.
    """

    type: str
    json_schema: JsonSchemaFormat | None = None
    top_schema: dict[str, object] | None = field(name="schema", default=None)


class StructuredOutputs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Exactly one of the first five.

    Attributes:
        json: A schema, or its JSON text.
        regex: A regular expression for the whole answer.
        choice: The answers to choose from.
        grammar: In llguidance's variant of Lark.
        json_object: True for any JSON object.
        structural_tag: Known to other servers, as are the next three: null or false only.
        disable_additional_properties: Objects that declare properties are closed anyway.
    """

    json: JsonSchema | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: object = None
    whitespace_pattern: str | None = None
    disable_fallback: bool | None = None
    disable_any_whitespace: bool | None = None
    disable_additional_properties: bool | None = None
