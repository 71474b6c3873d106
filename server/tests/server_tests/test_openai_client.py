"""The official client against the server: whole, streamed, and its errors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import openai
import pytest

from .scripted_engine import chain
from .served import Server

MESSAGES: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "hey"}]


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    server.script.table = {**chain(">", *"héy".encode(), 256), **chain("@", "o", "k", 256)}
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="m", messages=MESSAGES)
    assert answer.choices[0].message.content == "héy"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    chunks = list(
        client.chat.completions.create(
            model="m", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
    )
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(texts) == "héy"
    assert chunks[-1].usage == answer.usage


def test_completions(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="m", prompt="@", logprobs=1)
    assert answer.choices[0].text == "ok"
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.tokens == ["o", "k", "<eos>"]
    stream = client.completions.create(model="m", prompt="@", stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "ok"


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["m"]
    assert client.models.retrieve("m").owned_by == "pegainfer"


def test_errors_surface_with_message_code_and_param(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model="m", prompt="@", temperature=-1)
    assert "temperature" in refused.value.message
    assert (refused.value.code, refused.value.param) == ("invalid_value", "temperature")
    with pytest.raises(openai.NotFoundError) as missing:
        client.completions.create(model="x", prompt="@")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as late:
        client.chat.completions.create(
            model="m", messages=MESSAGES, stream=True, max_tokens=100_000
        )
    assert late.value.code == "context_length_exceeded"


def test_the_async_client(server: Server, client: openai.OpenAI) -> None:
    async def ask() -> tuple[str | None, str]:
        url = f"{server.url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as many:
            whole, stream = await asyncio.gather(
                many.chat.completions.create(model="m", messages=MESSAGES),
                many.chat.completions.create(model="m", messages=MESSAGES, stream=True),
            )
            parts = [chunk.choices[0].delta.content or "" async for chunk in stream]
            return whole.choices[0].message.content, "".join(parts)

    assert asyncio.run(ask()) == ("héy", "héy")
