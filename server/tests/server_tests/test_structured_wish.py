"""Which form a request's fields ask for, before any engine sees it."""

from __future__ import annotations

import json

import pytest
from pegainfer_server.protocol.chat import ChatRequest
from pegainfer_server.protocol.completion import CompletionRequest
from pegainfer_server.protocol.decode import BodyDecoder
from pegainfer_server.protocol.sampling_fields import SamplingFields
from pegainfer_server.structured_request import structured_wish

from pegainfer_core.contract import StructuredOutput

DECODERS: list[BodyDecoder[CompletionRequest] | BodyDecoder[ChatRequest]] = [
    BodyDecoder(CompletionRequest, {}),
    BodyDecoder(ChatRequest, {}),
]
#: All of vLLM's options, as a client writes them that was given one form.
NEUTRAL: dict[str, object] = {
    "json": None,
    "regex": None,
    "choice": None,
    "grammar": None,
    "json_object": None,
    "structural_tag": None,
    "whitespace_pattern": None,
    "disable_fallback": False,
    "disable_any_whitespace": False,
    "disable_additional_properties": False,
}


def decoded(
    decoder: BodyDecoder[CompletionRequest] | BodyDecoder[ChatRequest], **fields: object
) -> SamplingFields:
    body = {"prompt": "a", "messages": [], **fields}
    return decoder.decode(json.dumps(body).encode())


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize(
    ("given", "form"),
    [
        ({"regex": "a"}, StructuredOutput(kind="regex", text="a")),
        ({"choice": ["a", "é"]}, StructuredOutput(kind="choice", text='["a", "é"]')),
        ({"grammar": "start: X"}, StructuredOutput(kind="grammar", text="start: X")),
        ({"json_object": True}, StructuredOutput(kind="json_object")),
        ({"json": {"a": 1}}, StructuredOutput(kind="json_schema", text='{"a": 1}')),
        ({"json": False}, StructuredOutput(kind="json_schema", text="false")),
        ({"regex": "a", "json_object": False}, StructuredOutput(kind="regex", text="a")),
        (
            {"regex": "a", "disable_additional_properties": True},
            StructuredOutput(kind="regex", text="a"),
        ),
    ],
    ids=str,
)
def test_options_that_ask_for_nothing_pass(
    decoder: BodyDecoder[CompletionRequest] | BodyDecoder[ChatRequest],
    given: dict[str, object],
    form: StructuredOutput,
) -> None:
    for outputs in (given, {**NEUTRAL, **given}):
        wish = structured_wish(decoded(decoder, structured_outputs=outputs))
        assert wish is not None
        assert wish.form == form
