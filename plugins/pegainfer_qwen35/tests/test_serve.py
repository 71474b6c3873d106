"""Over HTTP, by the real host and server, from a folder as it is released."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from pegainfer_core import LLM, SamplingParams
from pegainfer_core.plugin import HostSettings, PluginHost
from pegainfer_core.testing.tiny import tiny_qwen35
from tests.cases.http_server import CHAT, HttpServer
from tests.cases.serving import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    folder = tiny_qwen35(
        tmp_path_factory.mktemp("served") / "m",
        nested=True,
        dtype="bfloat16",
        vocab=300,
        chat_template=TEMPLATE,
    )
    host = PluginHost.load(HostSettings(allowed=frozenset({"qwen35"}), strict=True))
    with serving(folder, host) as running:
        yield running


def test_completions_and_chats_streamed_and_whole(server: HttpServer) -> None:
    with server.unharmed():
        completion = server.complete([(7 * i) % 251 for i in range(50)], max_tokens=20)
        assert completion.num_tokens == 20
        assert server.chat("Good morning", max_tokens=10).num_tokens <= 10


def test_the_same_prompt_again_is_found(server: HttpServer) -> None:
    body = {"prompt": [5] + [(11 * i) % 251 for i in range(100)], "max_tokens": 4, "temperature": 0}
    cold, warm = (server.whole("/v1/completions", **body) for _ in range(2))
    cached = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in (cold, warm)]
    assert cached == [0, 96]
    assert cold["choices"] == warm["choices"]


def test_images_are_refused(server: HttpServer) -> None:
    with server.unharmed():
        message = {"role": "user", "content": [{"type": "text", "text": "What is it?"}, IMAGE]}
        error = server.refused(CHAT, {"messages": [message], "max_tokens": 4})
        assert "takes text parts only" in error["message"]


def test_the_vision_tower_is_skipped_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its tensors are in the file; nothing else is said about them."""
    folder = tiny_qwen35(tmp_path / "m", nested=True, vocab=300)
    assert b"model.visual." in (folder / "model.safetensors").read_bytes()
    with caplog.at_level(logging.INFO), LLM(folder) as llm:
        (answer,) = llm.generate([[5, 6, 7]], SamplingParams(max_tokens=3, ignore_eos=True))
    assert len(answer.token_ids) == 3
    (line,) = [record.getMessage() for record in caplog.records if "vision" in record.getMessage()]
    assert "without the vision tower (images are refused)" in line
    assert not [record for record in caplog.records if "visual" in record.getMessage()]
