"""S07: no space is invented around added tokens, and no true space is lost."""

from __future__ import annotations

import pytest

from pegainfer_core.testing.tiny import script, table_model
from tests.cases.conftest import BARE_TEMPLATE, Serve
from tests.cases.http_server import HttpServer


@pytest.fixture(scope="module")
def shared(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> HttpServer:
    table = (
        script("@", [258, "ok", 259, "1", 256])
        | script("#", [" a", 256])
        | script("$", [260, 261])
        | script(261, ["\n", "\t", 256])
    )
    return serve(
        table_model(tmp_path_factory.mktemp("s07") / "model", table, chat_template=BARE_TEMPLATE)
    )


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("@", "<think>ok</think>1"),
        ("#", " a"),
        ("$", "ab##cd\n\t"),  # 261 has no entry in the tokenizer: it shows nothing.
    ],
)
def test_text_is_the_tokens_texts(server: HttpServer, prompt: str, text: str) -> None:
    answer = server.complete(prompt, max_tokens=16, return_token_ids=True)
    assert answer.text == text
    assert answer.ending == ("stop", None)
    *ids, end = answer.choice["token_ids"]
    assert end == 256
    response = server.post("/detokenize", {"tokens": ids})
    assert response.json() == {"prompt": text}
    assert server.chat(prompt, separate_reasoning=False).text == text


def test_the_first_delta_keeps_its_space(server: HttpServer) -> None:
    answer = server.complete("#", max_tokens=16)
    assert [delta for delta in answer.deltas if delta] == [" ", "a"]
