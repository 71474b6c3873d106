"""A14: a rendered template holds its special tokens already; the tokenizer adds none to it."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer

from pegainfer_core.testing.byte_tokenizer import BOS_ID, byte_tokenizer
from pegainfer_core.testing.tiny import script, table_model
from tests.cases.conftest import Serve
from tests.cases.http_server import COMPLETIONS, HttpServer

BODY = "{% for m in messages %}{{ m.content }}{% endfor %}"
TEMPLATES = {"with": "{{ bos_token }}" + BODY, "without": BODY, "no tokenizer bos": BODY}


@pytest.fixture(scope="module")
def servers(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> dict[str, HttpServer]:
    base = tmp_path_factory.mktemp("a14")
    found = {}
    for name, template in TEMPLATES.items():
        folder = table_model(base / name, script("i", ["!", 256]), chat_template=template)
        if name != "no tokenizer bos":
            byte_tokenizer(folder, chat_template=template, prepend_bos=True)
        found[name] = serve(folder)
    return found


@pytest.fixture(params=TEMPLATES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shared(servers: dict[str, HttpServer], kind: str) -> HttpServer:
    return servers[kind]


def test_chats_have_what_the_template_writes(server: HttpServer, kind: str) -> None:
    answer = server.chat("Hi", return_token_ids=True)
    bos = [BOS_ID] if kind == "with" else []
    assert answer.body["prompt_token_ids"] == [*bos, 72, 105]
    assert answer.body["usage"]["prompt_tokens"] == len(bos) + 2
    assert answer.text == "!"
    messages = [{"role": "user", "content": "Hi"}]
    assert server.post("/tokenize", {"messages": messages}).json()["tokens"] == [*bos, 72, 105]


def test_chats_that_ask_for_special_tokens_get_them(server: HttpServer, kind: str) -> None:
    answer = server.chat("Hi", add_special_tokens=True, return_token_ids=True)
    written = {"with": 2, "without": 1, "no tokenizer bos": 0}[kind]
    assert answer.body["prompt_token_ids"] == [BOS_ID] * written + [72, 105]


@pytest.mark.parametrize("text", ["Hi", "<bos>Hi"])
def test_completions_have_what_the_tokenizer_adds(server: HttpServer, kind: str, text: str) -> None:
    """As the `tokenizers` library by itself: a BOS that the client types is one more."""
    root = server.get("/v1/models").json()["data"][0]["root"]
    library = Tokenizer.from_file(f"{root}/tokenizer.json")
    for special in (True, False):
        answer = server.complete(text, add_special_tokens=special, return_token_ids=True)
        ids = answer.choice["prompt_token_ids"]
        assert ids == library.encode(text, add_special_tokens=special).ids
        assert answer.body["usage"]["prompt_tokens"] == len(ids)
        sent = {"prompt": text, "add_special_tokens": special}
        assert server.post("/tokenize", sent).json()["tokens"] == ids
    default = server.complete("Hi", return_token_ids=True)
    bos = [] if kind == "no tokenizer bos" else [BOS_ID]
    assert default.choice["prompt_token_ids"] == [*bos, 72, 105]


def test_ids_get_nothing_added(server: HttpServer) -> None:
    answer = server.complete([72, 105], return_token_ids=True)
    assert answer.choice["prompt_token_ids"] == [72, 105]


def test_an_empty_text_is_one_token_where_a_bos_is_added(server: HttpServer, kind: str) -> None:
    """Case A02: then it is a prompt; where nothing is added, there is none."""
    if kind == "no tokenizer bos":
        assert server.refused(COMPLETIONS, {"prompt": ""})["param"] == "prompt"
    else:
        assert server.complete("", max_tokens=1).body["usage"]["prompt_tokens"] == 1
    assert server.refused(COMPLETIONS, {"prompt": "", "add_special_tokens": False})


def test_echo_shows_no_hidden_token(server: HttpServer) -> None:
    assert server.complete("Hi", echo=True, max_tokens=1).text == "Hi!"
