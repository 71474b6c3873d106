"""Request bodies as typed arguments of route handlers, decoded strictly.

The framework's own decoding is lax ("3" becomes 3); its documentation of bodies is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

import msgspec
from litestar.dto import AbstractDTO
from litestar.enums import RequestEncodingType
from litestar.params import Body

from pegainfer_server.protocol.decode import BodyDecoder

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from litestar._openapi.schema_generation import SchemaCreator
    from litestar.dto._backend import DTOBackend
    from litestar.dto.data_structures import DTOFieldDefinition
    from litestar.openapi.spec import Reference, Schema
    from litestar.typing import FieldDefinition

    from pegainfer_server.protocol.refused import Neutral

T = TypeVar("T", bound=msgspec.Struct)

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
    ) -> Reference | Schema:
        """Document the struct itself."""
        return schema_creator.for_field_definition(field_definition)

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


def strict_body(model: type[T], refused: Mapping[str, Neutral]) -> type[StrictBody]:
    """The body type of one endpoint, for a handler's `dto`."""
    return type(
        f"Strict{model.__name__}",
        (StrictBody,),
        {"model_type": model, "decoder": BodyDecoder(model, refused)},
    )
