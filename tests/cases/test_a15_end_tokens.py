"""A15: every end token that a file declares ends an answer; the client's own are another list."""

from __future__ import annotations

from typing import Any

import pytest

from pegainfer_core import SamplingParams
from pegainfer_core.testing.tiny import row, script, table_model
from tests.cases.conftest import LoadLLM, Serve
from tests.cases.http_server import HttpServer

EOS, TURN = 256, 257
IGNORING: dict[str, Any] = {"ignore_eos": True, "max_tokens": 6}


@pytest.fixture(scope="module")
def servers(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> dict[str, HttpServer]:
    """One script under three declarations; config.json and the tokenizer always name 256."""
    base = tmp_path_factory.mktemp("a15")
    table = script("@", ["A", TURN, "B", EOS, "C", "D", "E"]) | script("x", [EOS])
    # Another script, in which the end token is the likeliest from the start.
    table[ord("#")] = row({TURN: 10, "a": 9}, others=-40)
    table[ord("a")] = row({TURN: 10, "b": 9}, others=-40)
    table |= script("b", [TURN])
    declared: dict[str, dict[str, object] | None] = {
        "both": {"eos_token_id": [EOS, TURN]},
        "no file": None,
        "other": {"eos_token_id": [TURN]},
    }
    return {
        name: serve(table_model(base / name, table, generation_config=config))
        for name, config in declared.items()
    }


@pytest.fixture(params=["both", "no file", "other"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shared(servers: dict[str, HttpServer], kind: str) -> HttpServer:
    return servers[kind]


@pytest.mark.parametrize("fields", [{}, {"skip_special_tokens": False}])
def test_every_declared_end_token(server: HttpServer, kind: str, fields: dict[str, Any]) -> None:
    """The union of all files. End tokens are counted and have no text."""
    answer = server.complete("@", **fields)
    if kind == "no file":
        hidden = "" if not fields else "<turn>"
        assert (answer.text, answer.num_tokens) == (f"A{hidden}B", 4)
    else:
        assert (answer.text, answer.num_tokens) == ("A", 2)
    assert answer.ending == ("stop", None)
    other = server.complete("x", **fields)
    assert (other.text, other.ending, other.num_tokens) == ("", ("stop", None), 1)


def test_ignore_eos_covers_all(server: HttpServer) -> None:
    answer = server.complete("@", **IGNORING, return_token_ids=True)
    assert answer.choice["token_ids"] == [65, TURN, 66, EOS, 67, 68]
    assert (answer.text, answer.ending, answer.num_tokens) == ("ABCD", ("length", None), 6)


@pytest.mark.parametrize(("own", "text"), [([TURN], "A"), ([EOS], "AB"), ([67], "AB")])
def test_the_clients_ids_stay_active(server: HttpServer, own: list[int], text: str) -> None:
    answer = server.complete("@", **IGNORING, stop_token_ids=own)
    assert (answer.text, answer.ending) == (text, ("stop", own[0]))


def test_min_tokens_hold_every_end_token_back(server: HttpServer, kind: str) -> None:
    answer = server.complete("#", min_tokens=2, max_tokens=8, stop_token_ids=[TURN])
    assert (answer.text, answer.num_tokens) == ("ab", 3)
    if kind != "no file":
        plain = server.complete("#", min_tokens=2, max_tokens=8)
        assert (plain.text, plain.ending, plain.num_tokens) == ("ab", ("stop", None), 3)
        at_once = server.complete("#", max_tokens=8)
        assert (at_once.text, at_once.num_tokens) == ("", 1)


def test_min_tokens_under_ignore_eos(server: HttpServer) -> None:
    """Ignored end tokens are ordinary ones: nothing holds them back."""
    answer = server.complete("@", **IGNORING, min_tokens=6, return_token_ids=True)
    assert answer.choice["token_ids"] == [65, TURN, 66, EOS, 67, 68]


def test_an_end_token_that_the_client_names_too(server: HttpServer, kind: str) -> None:
    """The model's own end is the cause, unless it is ignored."""
    answer = server.complete("@", stop_token_ids=[TURN])
    assert answer.text == "A"
    assert answer.ending == ("stop", TURN if kind == "no file" else None)
    assert server.complete("x", stop_token_ids=[EOS]).ending == ("stop", None)
    ignoring = server.complete("x", **IGNORING, stop_token_ids=[EOS])
    assert ignoring.ending == ("stop", EOS)


def test_the_offline_api_says_the_same(server: HttpServer, load: LoadLLM) -> None:
    llm = load(server.get("/v1/models").json()["data"][0]["root"])
    for own in ([], [TURN], [EOS]):
        params = SamplingParams(temperature=0, max_tokens=16, stop_token_ids=own)
        (output,) = llm.generate("@", params, use_tqdm=False)
        answer = server.complete("@", stop_token_ids=own)
        assert (output.text, output.finish_reason, output.stop_reason) == (
            answer.text,
            *answer.ending,
        )
