"""S05: stop strings are found in the text, wherever tokens begin and end, and nothing leaks."""

from __future__ import annotations

from typing import Any

import pytest

from pegainfer_core.testing.tiny import script, table_model
from tests.cases.conftest import BARE_TEMPLATE, Serve
from tests.cases.http_server import CHAT, COMPLETIONS, Answer, HttpServer


@pytest.fixture(scope="module")
def shared(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> HttpServer:
    """`@` is answered with `A`, the one token `ab##cd`, `Z`."""
    table = script("@", ["A", 260, "Z", 256])
    return serve(
        table_model(tmp_path_factory.mktemp("s05") / "model", table, chat_template=BARE_TEMPLATE)
    )


def ask(server: HttpServer, path: str, **fields: Any) -> Answer:
    return server.complete("@", **fields) if path == COMPLETIONS else server.chat("@", **fields)


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize(
    ("fields", "text", "found"),
    [
        ({"stop": ["##"]}, "Aab", "##"),
        ({"stop": ["##"], "include_stop_str_in_output": True}, "Aab##", "##"),
        ({"stop": "##"}, "Aab", "##"),
        ({"stop": ["cd", "##"]}, "Aab", "##"),
        ({"stop": ["Aab##cdZ", "b#"]}, "Aa", "b#"),
        ({"stop": ["Aa"]}, "", "Aa"),
        ({"stop": ["##cdX", "cdZ"]}, "Aab##", "cdZ"),
        ({"stop": ["cdZ"], "include_stop_str_in_output": True}, "Aab##cdZ", "cdZ"),
    ],
)
def test_the_earliest_place_ends_the_answer(
    server: HttpServer, path: str, fields: dict[str, Any], text: str, found: str
) -> None:
    answer = ask(server, path, max_tokens=16, **fields)
    assert answer.text == text
    assert answer.ending == ("stop", found)
    # Usage ends at the token that completes the stop string, whatever was computed behind it.
    assert answer.num_tokens == (3 if found == "cdZ" else 2)


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize("fields", [{"stop": []}, {"stop": None}, {}, {"stop": ["zz", "#ab"]}])
def test_no_stop_string_no_stop(server: HttpServer, path: str, fields: dict[str, Any]) -> None:
    answer = ask(server, path, max_tokens=16, **fields)
    assert answer.text == "Aab##cdZ"
    assert answer.ending == ("stop", None)


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize("stop", ["", [""], ["##", ""]])
def test_an_empty_stop_string_is_refused(server: HttpServer, path: str, stop: object) -> None:
    prompt = {"prompt": "@"} if path == COMPLETIONS else {"messages": [_user("@")]}
    assert server.refused(path, {**prompt, "stop": stop})["param"] == "stop"


def test_what_could_begin_a_stop_string_is_not_lost(server: HttpServer) -> None:
    """Held back until the end; the last event carries it, or the one before."""
    answer = server.complete("@", max_tokens=3, stop=["Zz"])
    assert answer.text == "Aab##cdZ"
    assert answer.ending == ("length", None)


def test_ids_and_logprobs_end_with_the_text(server: HttpServer) -> None:
    answer = server.complete("@", stop="##", logprobs=0, return_token_ids=True, max_tokens=16)
    assert answer.choice["token_ids"] == [ord("A"), 260]
    assert answer.choice["logprobs"]["tokens"] == ["A", "ab##cd"]


def _user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}
