"""Fields of the hosted APIs: each is honoured, refused, or ignored and said to be."""

from __future__ import annotations

import inspect
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pegainfer_server.protocol.messages_request import (
    REFUSED_IN_COUNTS,
    REFUSED_IN_MESSAGES,
    CountTokensRequest,
    MessagesRequest,
)
from pegainfer_server.protocol.responses_request import REFUSED_IN_RESPONSES, ResponsesRequest

from .served import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

DOCS = Path(__file__).parents[3] / "docs" / "http-api.md"
OF_THE_CLIENT = {"self", "extra_headers", "extra_query", "extra_body", "timeout"}
RESPONSES: dict[str, Any] = {"input": "w?"}
MESSAGES: dict[str, Any] = {
    "model": "m", "max_tokens": 20, "messages": [{"role": "user", "content": "w?"}]
}  # fmt: skip
IGNORED: dict[str, dict[str, Any]] = {
    "/v1/responses": {
        "prompt_cache_key": "k",
        "prompt_cache_options": {"mode": "explicit", "ttl": "12h", "prewarm": False},
        "safety_identifier": "s",
        "user": "u",
        "max_tool_calls": 3,
        "image": {"context_compression": "auto"},
        "client_metadata": {"x-codex-installation-id": "i"},
    },
    "/v1/messages": {
        "cache_control": {"type": "ephemeral"},
        "metadata": {"user_id": "u"},
        "betas": ["b"],
        "anthropic_beta": ["b"],
        "anthropic_version": "v",
        "diagnostics": {"previous_message_id": "msg_1"},
        "user_profile_id": "p",
        "workspace_id": "w",
        "billing_policy": {"type": "billing_policy", "bill_to": "self"},
        "fallback_credit_token": "t",
        "output_config": {"task_budget": {"type": "tokens", "total": 20000}},
    },
}
REFUSED: dict[str, dict[str, Any]] = {
    "/v1/responses": {
        "access_programs": {"cyber": "daybreak_red"},
        "background_options": {"completion_window": "8h"},
        "prompt_cache_options": {"prewarm": True},
        "previous_response_id": "resp_1",
        "conversation": "conv_1",
        "top_logprobs": 2,
    },
    "/v1/messages": {
        "inference_geo": "us",
        "container": "c",
        "mcp_servers": [{"type": "url"}],
        "service_tier": "priority",
        "speed": "fast",
        "output_format": {"type": "json_schema"},
    },
}


def parameters(method: Callable[..., object]) -> set[str]:
    return set(inspect.signature(method).parameters) - OF_THE_CLIENT


def check(method: Callable[..., object], known: Collection[str], section: str) -> None:
    """The endpoint knows what the official client can send, and the docs speak of it."""
    asked = parameters(method)
    assert len(asked) > 5
    assert asked - set(known) == set()
    sections = dict(
        part.split("\n", 1) for part in DOCS.read_text(encoding="utf-8").split("\n## ")[1:]
    )
    told = sections["Request fields"] + sections[section]
    assert {name for name in asked if f"`{name}`" not in told} == set()


def test_what_the_openai_client_sends() -> None:
    from openai.resources.responses import Responses

    known = {*ResponsesRequest.__struct_fields__, *REFUSED_IN_RESPONSES}
    check(Responses.create, known, "Responses")


def test_what_the_anthropic_client_sends() -> None:
    from anthropic.resources.beta.messages import Messages as BetaMessages
    from anthropic.resources.messages import Messages

    known = {*MessagesRequest.__struct_fields__, *REFUSED_IN_MESSAGES}
    counted = {*CountTokensRequest.__struct_fields__, *REFUSED_IN_COUNTS}
    for resource in (Messages, BetaMessages):
        check(resource.create, known, "Messages")
        check(resource.count_tokens, counted, "Messages")


@pytest.mark.parametrize("path", IGNORED)
def test_what_is_ignored_changes_nothing(
    path: str, talker: Server, caplog: pytest.LogCaptureFixture
) -> None:
    body = RESPONSES if path == "/v1/responses" else MESSAGES
    with caplog.at_level(logging.WARNING):
        plain = talker.post(path, body)
        told = talker.post(path, {**body, **IGNORED[path]})
    assert (plain.status_code, told.status_code) == (200, 200), told.text
    first, second = talker.script.requests[-2:]
    assert first.prompt_token_ids == second.prompt_token_ids
    assert first.params == second.params
    assert "unknown request field" not in caplog.text


@pytest.mark.parametrize(("path", "name"), [(p, name) for p, by in REFUSED.items() for name in by])
def test_what_is_refused(path: str, name: str, talker: Server) -> None:
    body = RESPONSES if path == "/v1/responses" else MESSAGES
    response = talker.post(path, {**body, name: REFUSED[path][name]})
    assert response.status_code == 400
    assert name in response.json()["error"]["message"]
