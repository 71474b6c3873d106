"""A02: a prompt without tokens, or with an id that has no row, is the client's fault alone."""

from __future__ import annotations

import json

import pytest

from pegainfer_core.testing.tiny import tiny_qwen3
from tests.cases.conftest import BARE_TEMPLATE, Serve
from tests.cases.http_server import CHAT, COMPLETIONS, HttpServer

VOCAB = 1024


@pytest.fixture(scope="module")
def shared(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> HttpServer:
    """F3 with the tokenizer F1, which adds no BOS; every row of the embedding matters."""
    folder = tmp_path_factory.mktemp("a02") / "model"
    return serve(tiny_qwen3(folder, vocab=VOCAB, chat_template=BARE_TEMPLATE))


@pytest.mark.parametrize(
    "prompt",
    [
        "", [], [""], [[]], ["a", ""], [VOCAB], [-1], [1.5], [True], [[65], "a"], None,
        [65, VOCAB], [2**31], [2**63], [10**30], [65, None], {"text": "a"}, 65, True, [[[65]]],
    ],
)  # fmt: skip
def test_prompts_that_are_refused(server: HttpServer, prompt: object) -> None:
    error = server.refused(COMPLETIONS, {"prompt": prompt, "max_tokens": 1})
    assert error["param"].startswith(("prompt", "$.prompt"))
    assert error["type"] == "invalid_request_error"


def test_the_limit_and_the_id_are_named(server: HttpServer) -> None:
    message = server.refused(COMPLETIONS, {"prompt": [65, VOCAB, 66]})["message"]
    assert message == f"token id {VOCAB} is outside the vocabulary of {VOCAB}"


def test_a_missing_prompt(server: HttpServer) -> None:
    assert server.refused(COMPLETIONS, {"max_tokens": 1})["message"] == "prompt is required"


def test_the_last_row_is_a_token(server: HttpServer) -> None:
    answer = server.complete([VOCAB - 1], max_tokens=1)
    assert answer.body["usage"]["prompt_tokens"] == 1
    # It has no entry in the tokenizer: it shows nothing, in the prompt or in logprobs' names.
    echoed = server.complete([VOCAB - 1, 65], max_tokens=0, echo=True, logprobs=0)
    assert echoed.text == "A"
    assert echoed.choice["logprobs"]["tokens"] == [f"token_id:{VOCAB - 1}", "A"]


@pytest.mark.parametrize("prompts", [["a", ""], ["", "a"], [[65], []], ["a", "b" * 5000]])
def test_one_of_several_prompts_fails_the_whole(server: HttpServer, prompts: list[object]) -> None:
    num_steps = server.metric("engine_steps_total")
    error = server.refused(COMPLETIONS, {"prompt": prompts, "max_tokens": 1})
    assert error["param"] == f"prompt[{1 if prompts[0] else 0}]"
    assert server.metric("engine_steps_total") == num_steps
    good = server.whole(COMPLETIONS, prompt=["a", "b"], max_tokens=1)
    assert [choice["index"] for choice in good["choices"]] == [0, 1]


@pytest.mark.parametrize("content", ["", []])
def test_a_chat_that_renders_to_nothing(server: HttpServer, content: object) -> None:
    error = server.refused(CHAT, {"messages": [{"role": "user", "content": content}]})
    assert error["param"] == "messages"
    assert error["message"] == "the prompt has no tokens"


@pytest.mark.parametrize("ids", [[VOCAB], [-1], [2**40], [10**30]])
def test_ids_of_other_routes(server: HttpServer, ids: list[int]) -> None:
    """An id without text detokenizes to nothing; one that cannot be an id is refused."""
    response = server.post("/detokenize", {"tokens": ids})
    if ids == [VOCAB]:
        assert response.json() == {"prompt": ""}
    else:
        assert response.status_code == 400, response.text
    body = json.dumps({"prompt": "a", "stop_token_ids": ids}).encode()
    assert "stop_token_ids" in server.refused(COMPLETIONS, body)["param"]
