"""The body of `/v1/responses` when it is not streamed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_server.answer.parts import parts_of
from pegainfer_server.answer.response_frame import ResponseFrame
from pegainfer_server.answer.sse import encode_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.text import Tokenizer
    from pegainfer_server.answer.several import Choice
    from pegainfer_server.protocol.responses_request import ResponsesRequest


class WholeResponse:
    """Implements `ChoicesEncoder`."""

    def __init__(self, data: ResponsesRequest) -> None:
        self._data = data

    def __call__(self, choices: Sequence[Choice], tokenizer: Tokenizer) -> bytes:
        """The one answer as JSON."""
        ((generation, pieces, ending),) = choices
        frame = ResponseFrame(self._data, generation.job)
        return encode_json(frame.ended(parts_of(pieces), generation, ending))
