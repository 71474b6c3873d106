"""Bodies that nobody should send: each is answered or refused, never with a fault of the server.

`PEGAINFER_FUZZ_BODIES` sets how many are sent.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import random
from typing import Any

import httpx
import pytest

from pegainfer_core.testing.tiny import script, table_model
from tests.cases.conftest import BARE_TEMPLATE, Serve
from tests.cases.http_server import CHAT, COMPLETIONS, HttpServer

NUM_BODIES = int(os.environ.get("PEGAINFER_FUZZ_BODIES", "200"))
NUM_CLIENTS = 4
CONTEXT = 96
USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
SHARED: dict[str, Any] = {
    "model": "m", "max_tokens": 3, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1,
    "seed": 7, "presence_penalty": 0.5, "frequency_penalty": 0.5, "repetition_penalty": 1.1,
    "logit_bias": {"65": 1}, "allowed_token_ids": [65, 66], "bad_words": ["x"], "stop": ["q"],
    "stop_token_ids": [9], "include_stop_str_in_output": True, "ignore_eos": True,
    "min_tokens": 1, "n": 2, "best_of": 2, "stream": True,
    "stream_options": {"include_usage": True}, "skip_special_tokens": False,
    "truncate_prompt_tokens": 4, "return_token_ids": True, "return_tokens_as_token_ids": True,
    "request_id": "r", "cache_salt": "s", "priority": 1, "user": "u", "add_special_tokens": True,
}  # fmt: skip
BODIES: dict[str, dict[str, Any]] = {
    COMPLETIONS: {**SHARED, "prompt": ["hi", "ho"], "echo": True, "logprobs": 2},
    CHAT: {
        **SHARED, "messages": [USER, {"role": "assistant", "tool_calls": [CALL]}, USER],
        "logprobs": True, "top_logprobs": 2, "tools": [TOOL], "tool_choice": "auto",
        "chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "low",
        "response_format": {"type": "text"}, "continue_final_message": False,
    },
    "/v1/responses": {"model": "m", "input": [USER], "max_output_tokens": 16, "stream": True},
    "/v1/messages": {"model": "m", "messages": [USER], "max_tokens": 3, "system": "s"},
    "/tokenize": {"prompt": "hi", "return_token_strs": True},
    "/detokenize": {"tokens": [65, 66]},
}  # fmt: skip
HOSTILE: tuple[object, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**30, 1.5, -0.0, 1e308, "", "a",
    "\x00", "\ud800", "é🧭", "5", "null", "A" * 500, [], {}, [None], [[]], [True], [-1], [65, "a"],
    [[65], [66]], [1e9], {"a": 1}, {"": None}, {"type": "text"}, {"type": "json_object"},
    [{"role": "user"}], [{"role": "x", "content": 1}], [{"type": "text", "text": None}],
    {"65": 1e9}, {"-1": 0}, {"include_usage": 1}, "auto", "required", ["\ud800"], [{}] * 20,
)  # fmt: skip


@pytest.fixture(scope="module")
def shared(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> HttpServer:
    folder = tmp_path_factory.mktemp("fuzz") / "m"
    table = script("h", ["i", "o", "j", "h"])
    return serve(
        table_model(folder, table, chat_template=BARE_TEMPLATE, max_position_embeddings=CONTEXT)
    )


def wrong_values(rng: random.Random, body: dict[str, Any]) -> bytes:
    """Some fields have other values, are missing, or are not known."""
    keep = rng.choice([0.5, 0.9, 1.0])
    made = {name: value for name, value in body.items() if rng.random() < keep}
    for _ in range(rng.randint(0, 3)):
        made[rng.choice([*body, "suffix", "guided_json", "x", "prompt", "messages"])] = rng.choice(
            HOSTILE
        )
    return json.dumps(made, ensure_ascii=True).encode()


def inner_values(rng: random.Random, body: dict[str, Any]) -> bytes:
    """A value somewhere inside is another."""
    made = json.loads(json.dumps(body))
    place: Any = made
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = rng.choice(keys)
        if rng.random() < 0.4 or not isinstance(place[key], dict | list) or not place[key]:
            place[key] = rng.choice(HOSTILE)
            return json.dumps(made).encode()
        place = place[key]


def wrong_bytes(rng: random.Random, body: dict[str, Any]) -> bytes:
    """Bytes are changed, lost or doubled; it may end early."""
    raw = bytearray(json.dumps(body).encode())
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(raw))
        kind = rng.randrange(4)
        if kind == 0:
            raw[at] = rng.randrange(256)
        elif kind == 1:
            del raw[at : at + rng.randint(1, 8)]
        elif kind == 2:
            raw[at:at] = rng.choice([b"NaN", b"{", b"]", b'"', b"\\u", b"1e999", b"\xff\xfe", b","])
        else:
            raw[at:at] = raw[at : at + rng.randint(1, 30)]
        if not raw:
            break
    return bytes(raw[: rng.randrange(len(raw) + 1)] if rng.random() < 0.2 else raw)


def deep(rng: random.Random, body: dict[str, Any]) -> bytes:
    """Lists or mappings in each other, closed or not."""
    levels = rng.choice([5, 90, 1000, 50_000])
    opening, closing = rng.choice([("[", "]"), ('{"a":', "}")])
    value = opening * levels + "1" + closing * rng.choice([0, levels])
    return f'{{"{rng.choice(list(body))}":{value}}}'.encode()


MAKERS = (wrong_values, wrong_values, inner_values, inner_values, wrong_bytes, deep)


def send_many(server: HttpServer, seed: int, count: int) -> dict[int, int]:
    """Statuses by how often they came; fails at the first fault, naming the body."""
    rng = random.Random(seed)
    found: dict[int, int] = {}
    with httpx.Client(base_url=server.url, timeout=30, trust_env=False, verify=False) as client:
        for number in range(count):
            path = rng.choices(list(BODIES), [4, 4, 1, 1, 1, 1])[0]
            raw = rng.choice(MAKERS)(rng, BODIES[path])
            response = client.post(path, content=raw, headers={"content-type": "application/json"})
            told = f"seed {seed}, body {number} to {path}: {raw[:300]!r} {response.text[:300]}"
            assert response.status_code < 500, told
            assert "internal_error" not in response.text, told
            if response.status_code == 400:
                assert response.json()["error"]["message"], told
            found[response.status_code] = found.get(response.status_code, 0) + 1
    return found


@pytest.mark.parametrize("path", BODIES)
def test_the_bodies_are_good_before_they_are_changed(server: HttpServer, path: str) -> None:
    response = server.post(path, BODIES[path])
    assert response.status_code == 200, response.text


def test_no_body_is_a_fault_of_the_server(server: HttpServer) -> None:
    seeds = [random.SystemRandom().getrandbits(32) for _ in range(NUM_CLIENTS)]
    shares = [len(range(client, NUM_BODIES, NUM_CLIENTS)) for client in range(NUM_CLIENTS)]
    with concurrent.futures.ThreadPoolExecutor(NUM_CLIENTS) as pool:
        counts = list(pool.map(send_many, [server] * NUM_CLIENTS, seeds, shares))
    total: dict[int, int] = {}
    for found in counts:
        for status, count in found.items():
            total[status] = total.get(status, 0) + count
    print("answers by status:", dict(sorted(total.items())))
    assert total[200] >= NUM_BODIES // 50, "hardly a body was good enough to reach the model"
    assert total[400] >= NUM_BODIES // 4
