"""LangChain's OpenAI client against a real server: whole, streamed, several, and refused."""

from __future__ import annotations

from typing import Any

import pytest

from pegainfer_core.testing.tiny import script, table_model
from tests.cases.conftest import BARE_TEMPLATE, Serve
from tests.cases.http_server import HttpServer

pytestmark = [pytest.mark.hf, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def shared(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> HttpServer:
    folder = tmp_path_factory.mktemp("langchain") / "m"
    return serve(table_model(folder, script("a", ["o", "k", 256]), chat_template=BARE_TEMPLATE))


def settings(server: HttpServer) -> dict[str, Any]:
    return {
        "model": "m",
        "base_url": f"{server.url}/v1",
        "api_key": "none",
        "temperature": 0,
        "max_retries": 0,
    }


def test_chats(server: HttpServer) -> None:
    from langchain_core.messages import HumanMessage
    from langchain_openai import ChatOpenAI

    chat = ChatOpenAI(**settings(server), stream_usage=True)
    answer = chat.invoke("a")
    assert answer.content == "ok"
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["output_tokens"] == 3
    parts = list(chat.stream("a"))
    assert "".join(str(part.content) for part in parts) == "ok"
    assert [result.content for result in chat.batch(["a", "a"])] == ["ok", "ok"]
    several = ChatOpenAI(**settings(server), n=2).generate([[HumanMessage("a")]])
    assert [choice.text for choice in several.generations[0]] == ["ok", "ok"]


def test_completions(server: HttpServer) -> None:
    from langchain_openai import OpenAI

    client = OpenAI(**settings(server))
    assert client.invoke("a") == "ok"
    assert "".join(client.stream("a")) == "ok"
    # It sends its prompts as one list.
    assert [each[0].text for each in client.generate(["a", "a"]).generations] == ["ok", "ok"]


def test_refusals_are_told(server: HttpServer) -> None:
    import openai
    from langchain_openai import ChatOpenAI

    with pytest.raises(openai.BadRequestError, match="temperature must be a number"):
        ChatOpenAI(**{**settings(server), "temperature": -1}).invoke("a")
