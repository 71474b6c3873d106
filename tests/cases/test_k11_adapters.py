"""K11: adapters that fit nothing are refused with names and numbers, and disturb nobody.

Seen elsewhere: an adapter that matches no module serves the base model in silence; loaded adapters
change rows of the base model beside them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pegainfer_core.contract import AdapterError, AdapterProblem, UnknownLora
from pegainfer_core.testing.tiny import tiny_adapter, tiny_qwen3
from pegainfer_core.weights import ConfigError
from tests.cases.adapting import (
    AdapterFolders,
    adapters,
    engine_of,
    load_adapter,
    unload_adapter,
)
from tests.cases.answers import assert_same, greedy
from tests.cases.conftest import Serve, StartEngine
from tests.cases.http_server import CHAT, COMPLETIONS, HttpServer, error_of
from tests.cases.step_gate import StepGate

if TYPE_CHECKING:
    from pegainfer_core.testing.conformance.session import Session

__all__ = ["adapters"]

PARAMS = greedy(12, logprobs=3)


def named(folders: AdapterFolders) -> list[str]:
    return [f"x={folders.x}", f"y={folders.y}"]


def test_rows_of_one_step_are_as_alone(
    f3: Path, start: StartEngine, adapters: AdapterFolders, gate: StepGate
) -> None:
    session = start(f3, lora=named(adapters), prefix_cache=False)
    mix = [None, "x", "y", None, "x"]
    prompts = [session.prompt(9 + 11 * index, index) for index in range(len(mix))]
    plain = start(f3, prefix_cache=False)
    alone = [
        (session if lora else plain).answer(
            (session if lora else plain).submit(prompt, PARAMS, lora=lora)
        )
        for prompt, lora in zip(prompts, mix, strict=True)
    ]
    with gate.together(session):
        live = [
            session.submit(prompt, PARAMS, lora=lora)
            for prompt, lora in zip(prompts, mix, strict=True)
        ]
    for request_id, expected in zip(live, alone, strict=True):
        assert_same(session.answer(request_id), expected)
    assert max(len(rows) for rows in gate.steps) == len(mix)


def test_the_base_model_is_bit_by_bit_what_it_was(
    f3: Path, start: StartEngine, adapters: AdapterFolders
) -> None:
    plain, session = start(f3), start(f3, max_loras=2)
    prompt = session.prompt(20)

    def scores(asked: Session) -> object:
        answer = asked.generate(prompt, greedy(4, logprobs=5, prompt_logprobs=5))
        return answer.token_ids, answer.logprobs

    expected = scores(plain)
    assert scores(session) == expected
    load_adapter(session, "x", adapters.x)
    assert scores(session) == expected
    session.answer(session.submit(prompt, PARAMS, lora="x"))
    assert scores(session) == expected
    unload_adapter(session, "x")
    assert scores(session) == expected


def faulty(kind: str, folder: Path, f3: Path, tmp_path: Path) -> list[str]:
    """Write an adapter that does not fit, and say what its error must name."""
    match kind:
        case "another prefix":
            tiny_adapter(folder, f3, prefix="base_model.model.transformer.h")
            return ["base_model.model.transformer.h.0.", "base_model.model.model.layers.N"]
        case "a module that takes none":
            strange = "base_model.model.lm_head"
            tensors = {
                f"{strange}.lora_A.weight": np.ones((4, 128), np.float32),
                f"{strange}.lora_B.weight": np.ones((1000, 4), np.float32),
            }
            tiny_adapter(folder, f3, tensors=tensors)
            return ["base_model.model.lm_head.lora_A.weight", "q_proj"]
        case "a target without tensors":
            tiny_adapter(folder, f3, settings={"target_modules": ["q_proj", "embed_tokens"]})
            return ["embed_tokens", "target_modules"]
        case "too high a rank":
            tiny_adapter(folder, f3, rank=17)
            return ["r is 17", "--max-lora-rank is 16"]
        case "another base width":
            other = tiny_qwen3(tmp_path / "other", hidden=64)
            tiny_adapter(folder, other)
            return ["[4, 64]", "[4, 128]"]
        case "more layers":
            other = tiny_qwen3(tmp_path / "other", layers=3)
            tiny_adapter(folder, other)
            return ["model.layers.2.", "N below 2"]
        case "not a number":
            name = "base_model.model.model.layers.1.mlp.up_proj.lora_B.weight"
            tiny_adapter(folder, f3, tensors={name: np.full((256, 4), np.nan, np.float32)})
            return [name, "finite"]
    raise AssertionError(kind)


@pytest.mark.parametrize(
    "kind",
    [
        "another prefix",
        "a module that takes none",
        "a target without tensors",
        "too high a rank",
        "another base width",
        "more layers",
        "not a number",
    ],
)
def test_what_does_not_fit_is_refused(
    kind: str, f3: Path, start: StartEngine, tmp_path: Path
) -> None:
    words = faulty(kind, tmp_path / "faulty", f3, tmp_path)
    session = start(f3, max_loras=1, max_lora_rank=16)
    with pytest.raises(AdapterError) as caught:
        load_adapter(session, "faulty", tmp_path / "faulty")
    assert caught.value.problem is AdapterProblem.INVALID
    with pytest.raises(ConfigError) as at_start:
        start(f3, lora=[f"faulty={tmp_path / 'faulty'}"], max_lora_rank=16)
    for word in words:
        assert word in str(caught.value) and word in str(at_start.value)
    # Nothing is half loaded.
    assert engine_of(session).adapters() == []
    request_id = session.submit(session.prompt(8), PARAMS, lora="faulty")
    assert session.answer(request_id).rejected == UnknownLora(name="faulty")
    load_adapter(session, "good", tiny_adapter(tmp_path / "good", f3))
    assert [adapter.name for adapter in engine_of(session).adapters()] == ["good"]


def test_slots_are_kept_while_they_are_used(
    f3: Path, start: StartEngine, adapters: AdapterFolders, gate: StepGate
) -> None:
    """A request keeps the weights it began with, whatever its name is given to meanwhile."""
    session = start(f3, lora=[f"x={adapters.x}"], max_loras=2, prefix_cache=False)
    prompt = session.prompt(20)
    alone = session.answer(session.submit(prompt, PARAMS, lora="x"))
    gate.close()
    first = session.submit(prompt, PARAMS, lora="x")
    second = session.submit(prompt, greedy(2000), lora="x")
    gate.wait()
    changes = [
        engine_of(session).unload_adapter("x"),
        engine_of(session).load_adapter("x", str(adapters.y), replace=True),
    ]
    gate.open()
    with pytest.raises(AdapterError, match="use the adapter") as caught:
        changes[0].result(30)
    assert caught.value.problem is AdapterProblem.CONFLICT
    assert changes[1].result(30).rank == 17
    with pytest.raises(AdapterError, match="slots are in use"):
        load_adapter(session, "z", adapters.other_x)
    assert_same(session.answer(first), alone)
    session.abort(second)
    assert session.answer(session.submit(prompt, PARAMS, lora="x")).token_ids != alone.token_ids
    load_adapter(session, "z", adapters.x)
    assert_same(session.answer(session.submit(prompt, PARAMS, lora="z")), alone)


@pytest.fixture(scope="module")
def shared(f3: Path, serve: Serve, adapters: AdapterFolders) -> Iterator[HttpServer]:
    yield serve(f3, lora=named(adapters), max_loras=3, settings={"lora": True})


def names_of(server: HttpServer) -> list[str]:
    return [card["id"] for card in server.get("/v1/models").json()["data"]]


def test_names_over_http(server: HttpServer, adapters: AdapterFolders) -> None:
    cards = {card["id"]: card for card in server.get("/v1/models").json()["data"]}
    assert list(cards) == ["m", "x", "y"]
    assert cards["m"]["parent"] is None
    assert (cards["x"]["parent"], cards["x"]["root"]) == ("m", str(adapters.x))
    assert server.get("/v1/models/m:y").json()["root"] == str(adapters.y)
    fields = {"prompt": list(range(20)), "max_tokens": 8, "return_token_ids": True}
    fields |= {"temperature": 0, "ignore_eos": True}
    found = {}
    for name in ("m", "x", "m:x", "y", None):
        body = server.whole(COMPLETIONS, model=name, **fields)
        assert body["model"] == (name or "m")
        found[name] = body["choices"][0]["token_ids"]
    assert found["x"] == found["m:x"]
    assert found["m"] == found[None]
    assert len({tuple(found[name]) for name in ("m", "x", "y")}) == 3


def test_unknown_names_over_http(server: HttpServer) -> None:
    bodies = {
        COMPLETIONS: {"prompt": "a", "max_tokens": 1},
        CHAT: {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1},
    }
    for path, body in bodies.items():
        for name in ("unknown-adapter", "m:unknown", "x:m", "m:", ":x"):
            error = error_of(server.post(path, {**body, "model": name}), 404)
            assert (error["code"], error["param"]) == ("model_not_found", "model")
            assert "'x'" in error["message"]
    assert server.get("/v1/models/unknown").status_code == 404


def test_loading_over_http(server: HttpServer, adapters: AdapterFolders, f3: Path) -> None:
    load, unload = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
    body = {"lora_name": "z", "lora_path": str(adapters.other_x)}
    response = server.post(load, body)
    assert (response.status_code, response.text) == (
        200,
        "Success: LoRA adapter 'z' added successfully.",
    )
    assert names_of(server) == ["m", "x", "y", "z"]
    assert "load_inplace" in error_of(server.post(load, body))["message"]
    assert server.post(load, {**body, "load_inplace": True}).status_code == 200
    full = error_of(server.post(load, {**body, "lora_name": "w"}), 409)
    assert full["code"] == "adapter_in_use" and "--max-loras" in full["message"]
    faults = (
        ({**body, "lora_name": "m"}, "lora_name"),
        ({**body, "lora_name": "w", "lora_path": str(f3)}, "lora_path"),
        *(
            ({**body, "lora_name": name}, "lora_name")
            for name in ("", "x:y", "m:w", "../w", "a\nb", "w" * 257, "x")
        ),
        *(
            ({**body, "lora_name": "w", "lora_path": path}, "lora_path")
            for path in ("", " ", "\0", "~nobody-of-that-name/x", "/" + "w" * 5000)
        ),
        ({**body, "is_3d_lora_weight": True}, "is_3d_lora_weight"),
        ({"lora_name": "w"}, "$.lora_path"),
    )
    for fault, param in faults:
        assert error_of(server.post(load, fault))["param"] == param, json.dumps(fault)
    response = server.post(unload, {"lora_name": "z", "lora_int_id": 3})
    assert response.text == "Success: LoRA adapter 'z' removed successfully."
    assert error_of(server.post(unload, {"lora_name": "z"}), 404)["code"] == "model_not_found"
    assert names_of(server) == ["m", "x", "y"]


def test_unloading_what_is_used(server: HttpServer) -> None:
    body = {"model": "x", "prompt": [1, 2, 3], "max_tokens": 4000, "ignore_eos": True}
    with server._client.stream("POST", COMPLETIONS, json={**body, "stream": True}) as response:
        lines = response.iter_lines()  # kept, or the connection would be closed here
        assert next(lines).startswith("data: ")
        error = error_of(server.post("/v1/unload_lora_adapter", {"lora_name": "x"}), 409)
        assert error["code"] == "adapter_in_use" and "1 requests" in error["message"]
    assert names_of(server) == ["m", "x", "y"]
