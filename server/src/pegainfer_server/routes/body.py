"""Request bodies as typed arguments of route handlers, decoded strictly.

The framework's own decoding is lax ("3" becomes 3); its documentation of bodies is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

import msgspec
from litestar.dto import AbstractDTO
from litestar.enums import RequestEncodingType
from litestar.openapi import ResponseSpec
from litestar.params import Body

from pegainfer_server.protocol.decode import BodyDecoder
from pegainfer_server.protocol.error import ErrorResponse
from pegainfer_server.routes.struct_schema import StructSchema

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from litestar._openapi.schema_generation import SchemaCreator
    from litestar.dto._backend import DTOBackend
    from litestar.dto.data_structures import DTOFieldDefinition
    from litestar.openapi.spec import Reference
    from litestar.typing import FieldDefinition

    from pegainfer_server.protocol.refused import Neutral

T = TypeVar("T", bound=msgspec.Struct)

_REFUSALS: Final = {
    400: "A field is wrong; `param` names it.",
    401: "No valid API key.",
    403: "A foreign Origin or an unknown Host.",
    404: "No model of that name.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    429: "Too many requests wait.",
    500: "A fault of the server.",
    503: "The model is loading, or the server stops.",
}

JSON_BODY: Final = Body(media_type=RequestEncodingType.JSON)
"""Marks the argument that holds the body."""


class StrictBody(AbstractDTO[msgspec.Struct]):
    """Hands the raw body to a `BodyDecoder`; made by `strict_body`."""

    decoder: ClassVar[BodyDecoder[msgspec.Struct]]

    def decode_bytes(self, value: bytes) -> msgspec.Struct:
        """Decode a body.

        Raises:
            ApiError: 400 naming the field.
        """
        return self.decoder.decode(value)

    @classmethod
    def create_for_field_definition(
        cls,
        field_definition: FieldDefinition,
        handler_id: str,
        backend_cls: type[DTOBackend] | None = None,
    ) -> None:
        """No transfer model is needed: the struct is what is decoded."""

    @classmethod
    def create_openapi_schema(
        cls, field_definition: FieldDefinition, handler_id: str, schema_creator: SchemaCreator
    ) -> Reference | StructSchema:
        """Document the struct itself, with every constraint it states."""
        return StructSchema(cls.model_type)

    @classmethod
    def generate_field_definitions(
        cls, model_type: type[msgspec.Struct]
    ) -> Generator[DTOFieldDefinition, None, None]:
        """There is no transfer model."""
        yield from ()

    @classmethod
    def detect_nested_field(cls, field_definition: FieldDefinition) -> bool:
        """There is no transfer model."""
        return False


def documented(
    answer: type[msgspec.Struct], error: type[msgspec.Struct] = ErrorResponse
) -> dict[int, ResponseSpec]:
    """What an endpoint with a body answers, for a handler's `responses`."""
    found = {200: ResponseSpec(answer, generate_examples=False, description="The answer.")}
    for status, words in _REFUSALS.items():
        found[status] = ResponseSpec(error, generate_examples=False, description=words)
    return found


def strict_body(model: type[T], refused: Mapping[str, Neutral]) -> type[StrictBody]:
    """The body type of one endpoint, for a handler's `dto`."""
    return type(
        f"Strict{model.__name__}",
        (StrictBody,),
        {"model_type": model, "decoder": BodyDecoder(model, refused)},
    )
