"""S01: a character whose bytes lie in several tokens must not reach the client in pieces."""

from __future__ import annotations

import concurrent.futures

import pytest

from pegainfer_core.testing.tiny import script, table_model
from tests.cases.conftest import BARE_TEMPLATE, Serve
from tests.cases.http_server import COMPLETIONS, Answer, HttpServer

TEXT = "é🧭한"  # C3 A9, F0 9F A7 AD, ED 95 9C: two, four and three tokens


@pytest.fixture(scope="module")
def shared(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> HttpServer:
    folder = tmp_path_factory.mktemp("s01") / "model"
    return serve(table_model(folder, script("n", [TEXT, 256]), chat_template=BARE_TEMPLATE))


def check(answer: Answer) -> None:
    assert answer.text == TEXT
    assert not any("\ufffd" in delta for delta in answer.deltas)
    assert answer.ending == ("stop", None)
    assert answer.num_tokens == len(TEXT.encode()) + 1


def test_completions(server: HttpServer) -> None:
    answer = server.complete("n", max_tokens=32)
    check(answer)
    assert [delta for delta in answer.deltas if delta] == list(TEXT)


def test_chats(server: HttpServer) -> None:
    check(server.chat("n"))


@pytest.mark.parametrize("fields", [{"logprobs": 1}, {"stop": ["zz", "한z"]}, {"echo": True}])
def test_with_what_else_looks_at_text(server: HttpServer, fields: dict[str, object]) -> None:
    answer = server.complete("n", max_tokens=32, **fields)
    assert answer.text.removeprefix("n") == TEXT
    assert not any("\ufffd" in delta for delta in answer.deltas)


def test_eight_at_once(server: HttpServer) -> None:
    """Bytes that wait for the rest of their character belong to one request."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(server.complete, "n", max_tokens=32) for _ in range(8)]
        for answer in asked:
            check(answer.result())


@pytest.mark.parametrize("max_tokens", [1, 3, 5, 7])
def test_an_answer_cut_inside_a_character(server: HttpServer, max_tokens: int) -> None:
    """Then nothing completes it: one U+FFFD at the end, in both modes."""
    answer = server.complete("n", max_tokens=max_tokens)
    assert answer.text == TEXT.encode()[:max_tokens].decode(errors="replace")
    assert answer.text.endswith("\ufffd") and answer.text.count("\ufffd") == 1
    assert answer.ending == ("length", None)


def test_events_are_utf8_each(server: HttpServer) -> None:
    """No event may end inside a character on the wire either."""
    body = {"prompt": "n", "max_tokens": 32, "temperature": 0, "stream": True}
    for block in server.post(COMPLETIONS, body).content.split(b"\n\n"):
        block.decode()
