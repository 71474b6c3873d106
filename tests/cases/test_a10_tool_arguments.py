"""A10: a tool call's arguments come as JSON text; each template gets them in the form it takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import openai
import pytest
import tokenizers

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


#: What the model answers, a token each: two calls, the arguments of the first cut in two.
CALLED = [
    "<tool_call>", '\n{"name": "f", "arguments": ', '{"n": 3, "s": "', "a</tool_call>", '"}', "}\n",
    "</tool_call>", "\n<tool_call>\n", '{"name": "g", "arguments": {}}', "\n</tool_call>",
]  # fmt: skip
ARGUMENTS = '{"n": 3, "s": "a</tool_call>"}'
TOOLS: list[Any] = [{"type": "function", "function": {"name": name}} for name in "fg"]
FIRST_ID = 261


@pytest.fixture(scope="module")
def calling(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> HttpServer:
    """A Qwen3 that calls, and whose template walks the arguments of its calls."""
    ids = range(FIRST_ID, FIRST_ID + len(CALLED))
    template = f"{HEAD}{TEMPLATES['walks']}{TAIL}"
    folder = tmp_path_factory.mktemp("calls") / "model"
    table_model(folder, script("!", [*ids, 256]), chat_template=template)
    _add_tokens(folder, CALLED)
    return serve(folder)


def _add_tokens(folder: Path, texts: list[str]) -> None:
    """Some of them special, as in models whose markers are."""
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in texts:
        special = text.strip() in ("<tool_call>", "</tool_call>") and text == text.strip()
        token = tokenizers.AddedToken(text, special=special, normalized=False)
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)([token])
    assert tokenizer.token_to_id(texts[-1]) == FIRST_ID + len(texts) - 1
    tokenizer.save(str(folder / "tokenizer.json"))


def test_the_answers_own_arguments_stay_text(calling: HttpServer) -> None:
    with calling.unharmed():
        answer = calling.chat("w?", tools=TOOLS)
    message = answer.choice["message"]
    calls = [call["function"] for call in message["tool_calls"]]
    assert calls == [{"name": "f", "arguments": ARGUMENTS}, {"name": "g", "arguments": "{}"}]
    assert (message["content"], answer.ending) == (None, ("tool_calls", None))
    assert answer.num_tokens == len(CALLED) + 1
    # Without tools nothing shows the markers that are special.
    plain = calling.chat("w?")
    hidden = ("<tool_call>", "</tool_call>")
    assert plain.text == "".join(text for text in CALLED if text not in hidden)


def test_a_round_trip_of_the_official_client(calling: HttpServer) -> None:
    """What the client got it sends back, and the template gets mappings."""
    with openai.OpenAI(base_url=f"{calling.url}/v1", api_key="none", max_retries=0) as client:
        create = client.chat.completions.create
        messages: list[Any] = [{"role": "user", "content": "w?"}]
        message = create(model="m", messages=messages, tools=TOOLS).choices[0].message
        messages.append(message.to_dict())
        for call in message.tool_calls or []:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "5"})
        extra = {"return_token_ids": True}
        again: Any = create(model="m", messages=messages, tools=TOOLS, extra_body=extra)
        ids = again.prompt_token_ids
        prompt = calling.post("/detokenize", {"tokens": ids}).json()["prompt"]
        assert prompt == "w?<n=3s=a</tool_call>><>55!"
        joined: dict[int, str] = {}
        chunks = create(model="m", messages=messages, tools=TOOLS, stream=True)
        for piece in (p for chunk in chunks for p in chunk.choices[0].delta.tool_calls or []):
            arguments = piece.function.arguments if piece.function else None
            joined[piece.index] = joined.get(piece.index, "") + (arguments or "")
    assert joined == {0: ARGUMENTS, 1: "{}"}
    found: Mapping[str, object] = json.loads(joined[0])
    assert found == {"n": 3, "s": "a</tool_call>"}
