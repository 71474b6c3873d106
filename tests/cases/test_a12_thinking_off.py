"""A12: whether an answer begins as reasoning is a fact about the rendered prompt.

With thinking off, the prompt ends outside a think block and the answer is content.
"""

from __future__ import annotations

from typing import Any

import pytest

from pegainfer_core.testing.tiny import script, table_model
from pegainfer_core.text import prompt_ends_in_reasoning
from tests.cases.conftest import Serve
from tests.cases.http_server import HttpServer

OPEN, CLOSED = "<think>\n", "<think>\n\n</think>\n\n"
HEAD = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
TEMPLATES = {
    "opens": HEAD + "{% if enable_thinking is defined and enable_thinking is false %}"
    "<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}",
    "closes": HEAD + "{% if enable_thinking is defined and enable_thinking is true %}"
    "<think>\n{% else %}<think>\n\n</think>\n\n{% endif %}",
}
DEFAULTS = {"opens": True, "closes": False}
ON, OFF = ({"chat_template_kwargs": {"enable_thinking": value}} for value in (True, False))


@pytest.fixture(scope="module")
def servers(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> dict[str, HttpServer]:
    base = tmp_path_factory.mktemp("a12")
    table = script("\n", ["4", 256])
    return {
        name: serve(table_model(base / name, table, chat_template=source))
        for name, source in TEMPLATES.items()
    }


@pytest.fixture(params=TEMPLATES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shared(servers: dict[str, HttpServer], kind: str) -> HttpServer:
    return servers[kind]


@pytest.mark.parametrize(
    ("fields", "thinks"),
    [
        ({}, None),
        (OFF, False),
        (ON, True),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "high"}, True),
        # What the client says of the template itself is nearer.
        ({"reasoning_effort": "none", **ON}, True),
    ],
)
def test_the_prompt_tells(
    server: HttpServer, kind: str, fields: dict[str, Any], thinks: bool | None
) -> None:
    answer = server.chat("hi", **fields, return_token_ids=True)
    ids = answer.body["prompt_token_ids"]
    prompt = server.post("/detokenize", {"tokens": ids}).json()["prompt"]
    expected = DEFAULTS[kind] if thinks is None else thinks
    assert prompt == "hi\n" + (OPEN if expected else CLOSED)
    assert prompt_ends_in_reasoning(prompt) is expected
    message = answer.choice["message"]
    found = message["content"], message["reasoning_content"]
    assert found == ((None, "4") if expected else ("4", None))
    assert message["reasoning"] == message["reasoning_content"]
    assert answer.ending == ("stop", None)
    # The end token is an answer's, but none of its reasoning.
    details = answer.body["usage"]["completion_tokens_details"]
    assert details == {"reasoning_tokens": 1 if expected else 0}


def test_a_user_who_writes_the_tag_changes_nothing(server: HttpServer, kind: str) -> None:
    answer = server.chat("hi <think>", **OFF, return_token_ids=True)
    ids = answer.body["prompt_token_ids"]
    prompt = server.post("/detokenize", {"tokens": ids}).json()["prompt"]
    assert not prompt_ends_in_reasoning(prompt)
    assert answer.text == "4"
