"""S03: a prompt of ids that stops inside a character must not come back with the first delta."""

from __future__ import annotations

import pytest

from pegainfer_core.testing.tiny import script, table_model
from tests.cases.conftest import Serve
from tests.cases.http_server import HttpServer

#: "Hi " and the first two of the four bytes of U+1F9ED.
PROMPT = [72, 105, 32, 0xF0, 0x9F]


@pytest.fixture(scope="module")
def shared(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> HttpServer:
    table = script(0x9F, [0xA7, 0xAD, "!", 256]) | script("n", [0xC3, 256])
    return serve(table_model(tmp_path_factory.mktemp("s03") / "model", table))


def test_no_delta_holds_the_prompt(server: HttpServer) -> None:
    answer = server.complete(PROMPT, max_tokens=8)
    assert not any("H" in delta or "i" in delta for delta in answer.deltas)
    # Ours: an answer's text is that of its own bytes, so the straddling character is lost.
    assert answer.text == "\ufffd\ufffd!"
    assert answer.ending == ("stop", None)


@pytest.mark.parametrize("max_tokens", [1, 2, 3])
def test_wherever_the_answer_ends(server: HttpServer, max_tokens: int) -> None:
    answer = server.complete(PROMPT, max_tokens=max_tokens)
    assert answer.text == "\ufffd\ufffd!"[:max_tokens]


def test_with_echo_the_prompt_comes_once(server: HttpServer) -> None:
    answer = server.complete(PROMPT, max_tokens=8, echo=True)
    assert answer.text == "Hi \ufffd" + "\ufffd\ufffd!"


def test_stop_strings_see_the_answer_only(server: HttpServer) -> None:
    answer = server.complete(PROMPT, max_tokens=8, stop=["Hi", " ", "!"])
    assert answer.text == "\ufffd\ufffd"
    assert answer.ending == ("stop", "!")


def test_an_answer_of_half_a_character(server: HttpServer) -> None:
    """Behind a whole prompt: what never became a character shows as U+FFFD, in both modes."""
    assert server.complete("n", max_tokens=8).text == "\ufffd"
