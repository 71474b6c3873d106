"""A10: a tool call's arguments come as JSON text; each template gets them in the form it takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pegainfer_core.testing.tiny import script, table_model
from tests.cases.conftest import Serve
from tests.cases.http_server import CHAT, HttpServer

HEAD = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}<"
TAIL = ">{% endfor %}{% endfor %}!"
#: How templates in the field handle arguments.
TEMPLATES = {
    "walks": "{% for k, v in c.function.arguments | items %}{{ k }}={{ v }}{% endfor %}",
    "encodes": "{{ c.function.arguments | tojson }}",
    "asks": (
        "{% set a = c.function.arguments %}"
        "{% if a is string %}{{ a }}{% else %}{{ a | tojson }}{% endif %}"
    ),
    "prints": "{{ c.function.arguments }}",
}
PROMPTS = {"walks": "n=3", "encodes": '{"n": 3}', "asks": '{"n": 3}', "prints": '{"n":3}'}


@pytest.fixture(scope="module")
def servers(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> dict[str, HttpServer]:
    base = tmp_path_factory.mktemp("a10")
    table = script("!", ["4", 256])
    return {
        name: serve(table_model(base / name, table, chat_template=f"{HEAD}{source}{TAIL}"))
        for name, source in TEMPLATES.items()
    }


@pytest.fixture(params=TEMPLATES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shared(servers: dict[str, HttpServer], kind: str) -> HttpServer:
    return servers[kind]


def history(arguments: object) -> list[dict[str, Any]]:
    function = {"name": "f", "arguments": arguments}
    return [
        {"role": "user", "content": "w?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "5"},
    ]


def rendered(server: HttpServer, arguments: object) -> str:
    """What stands for the arguments in the prompt."""
    answer = server.chat(history(arguments), return_token_ids=True)
    assert answer.text == "4"
    prompt = bytes(answer.body["prompt_token_ids"]).decode()
    assert prompt.startswith("w?<") and prompt.endswith(">5!")
    return prompt[3:-3]


def test_each_template_gets_what_it_takes(server: HttpServer, kind: str) -> None:
    assert rendered(server, '{"n":3}') == PROMPTS[kind]


@pytest.mark.parametrize("nothing", ["", " ", "{}", {}, None])
def test_no_arguments(server: HttpServer, kind: str, nothing: object) -> None:
    assert rendered(server, nothing) == ("" if kind == "walks" else "{}")


def test_text_inside_stays_text(server: HttpServer, kind: str) -> None:
    value = 'quote " and <tag> & 한'
    shown = rendered(server, json.dumps({"k": value}, ensure_ascii=False))
    if kind == "walks":
        assert shown == f"k={value}"
    else:
        assert json.loads(shown) == {"k": value}


@pytest.mark.parametrize(
    "broken", ['{"n":', "[1]", "3", '"{}"', "null", "{'n': 3}", '{"n":NaN}', "[" * 5000, 3, [1]]
)
def test_broken_arguments_are_the_clients_fault(server: HttpServer, broken: object) -> None:
    error = server.refused(CHAT, {"messages": history(broken)})
    assert error["param"] == "messages[1].tool_calls[0].function.arguments"
