"""A09: every legal shape of a message reaches the template; its refusal is the client's error.

Text parts are joined with a newline; content that is null, absent or an empty list is the empty
text.
"""

from __future__ import annotations

from typing import Any

import pytest

from pegainfer_core.testing.tiny import script, table_model
from tests.cases.conftest import Serve
from tests.cases.http_server import CHAT, HttpServer

TEMPLATE = (
    "{% if messages | selectattr('role', 'equalto', 'user') | list | length == 0 %}"
    "{{ raise_exception('need user') }}{% endif %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% for call in m.tool_calls or [] %}({{ call.function.name }}){% endfor %}"
    "{% endfor %}>"
)
USER = {"role": "user", "content": "w?"}
CALLS = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
TOOL = {"role": "tool", "tool_call_id": "c1", "content": "5"}


def text_parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


@pytest.fixture(scope="module")
def shared(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> HttpServer:
    folder = tmp_path_factory.mktemp("a09") / "model"
    return serve(table_model(folder, script(">", ["4", 256]), chat_template=TEMPLATE))


@pytest.mark.parametrize(
    ("messages", "prompt"),
    [
        ([{"role": "user", "content": text_parts("one", "two")}], "[user]one\ntwo>"),
        ([{"role": "user", "content": text_parts("one")}], "[user]one>"),
        (
            [USER, {"role": "assistant", "content": None, "tool_calls": CALLS}, TOOL],
            "[user]w?[assistant](f)[tool]5>",
        ),
        (
            [USER, {"role": "assistant", "content": [], "tool_calls": CALLS}, TOOL],
            "[user]w?[assistant](f)[tool]5>",
        ),
        (
            [USER, {"role": "assistant", "tool_calls": CALLS}, TOOL],
            "[user]w?[assistant](f)[tool]5>",
        ),
        (
            [USER, {"role": "assistant", "content": None, "tool_calls": None}, USER],
            "[user]w?[assistant][user]w?>",
        ),
        ([USER, {"role": "assistant", "content": "x", "tool_calls": []}], "[user]w?[assistant]x>"),
        (
            [USER, {**TOOL, "content": text_parts("5", "6")}],
            "[user]w?[tool]5\n6>",
        ),
        ([{"role": "system", "content": text_parts("s")}, USER], "[system]s[user]w?>"),
        ([{"role": "developer", "content": "d"}, USER], "[system]d[user]w?>"),
        ([{"role": "user", "content": None}], "[user]>"),
        ([{"role": "user"}], "[user]>"),
        ([{**USER, "name": None, "refusal": None, "audio": None}], "[user]w?>"),
        ([{"role": "user", "content": "None"}], "[user]None>"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {}}]}],
            "[user]a>",
        ),
    ],
)
def test_the_rendered_prompt(
    server: HttpServer, messages: list[dict[str, Any]], prompt: str
) -> None:
    answer = server.chat(messages, return_token_ids=True)
    assert bytes(answer.body["prompt_token_ids"]).decode() == prompt
    assert answer.text == "4"
    response = server.post("/tokenize", {"messages": messages})
    assert bytes(response.json()["tokens"]).decode() == prompt


@pytest.mark.parametrize(
    "messages", [[{"role": "system", "content": "s"}], [TOOL], [{"role": "assistant"}]]
)
def test_the_templates_own_refusal(server: HttpServer, messages: list[dict[str, Any]]) -> None:
    error = server.refused(CHAT, {"messages": messages})
    assert (error["message"], error["param"]) == ("need user", "messages")
    assert server.refused("/tokenize", {"messages": messages})["message"] == "need user"


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


@pytest.mark.parametrize(
    ("messages", "where"),
    [
        ([], "messages"),
        ([{"role": "user", "content": [*text_parts("a"), IMAGE]}], "messages[0].content[1]"),
        ([USER, {"role": "user", "content": [{"type": "input_audio"}]}], "messages[1].content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text", "text": None}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": 5}], "$.messages[0].content"),
        ([{"role": "user", "content": [5]}], "$.messages[0].content[0]"),
        ([{"role": "user", "content": [None]}], "$.messages[0].content[0]"),
        ([{"role": "wizard", "content": "a"}], "$.messages[0].role"),
        ([{"content": "a"}], "$.messages[0].role"),
        ([None], "$.messages[0]"),
        (["a"], "$.messages[0]"),
        ("a", "$.messages"),
        (None, "$.messages"),
        ([USER, {"role": "assistant", "tool_calls": [{}]}], "messages[1].tool_calls[0]"),
        ([USER, {"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}],
         "messages[1].tool_calls[0].function.name"),
    ],
)  # fmt: skip
def test_shapes_that_are_refused(server: HttpServer, messages: object, where: str) -> None:
    assert server.refused(CHAT, {"messages": messages})["param"] == where


def test_missing_messages(server: HttpServer) -> None:
    assert server.refused(CHAT, {"max_tokens": 1})["message"] == "messages is required"
