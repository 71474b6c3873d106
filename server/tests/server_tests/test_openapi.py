"""What `/schema` says of bodies holds: requests made from it meet no fault, answers are as it says.

`PEGAINFER_SCHEMA_EXAMPLES` sets how many requests are made for each endpoint.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from .scripted_engine import Script, chain
from .served import Server, serving

NUM_EXAMPLES = int(os.environ.get("PEGAINFER_SCHEMA_EXAMPLES", "20"))
OURS = ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize")
PATHS = (*OURS, "/v1/responses", "/v1/messages", "/v1/messages/count_tokens")
STREAM = "text/event-stream; charset=utf-8"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    script = Script(table=chain("a", "b", "c", 256))
    with serving(tmp_path_factory.mktemp("schema") / "m", script, max_model_len=64) as server:
        yield server


@pytest.mark.hf
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", PATHS)
def test_bodies_made_from_the_schema(small: Server, path: str) -> None:
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import response_schema_conformance

    schema = schemathesis.openapi.from_url(f"{small.url}/schema/openapi.json")
    statuses: Counter[int] = Counter()

    @settings(
        max_examples=NUM_EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=schema[path]["POST"].as_strategy())
    def ask(case: Any) -> None:
        response = case.call()
        statuses[response.status_code] += 1
        checks = [not_a_server_error]
        if path in OURS and response.headers["content-type"] != [STREAM]:
            checks.append(response_schema_conformance)
        case.validate_response(response, checks=checks)

    ask()
    assert sum(statuses.values()) >= NUM_EXAMPLES / 2
    small.wait_for(lambda: small.state.num_open == 0, 5)


def test_constraints_are_stated(small: Server) -> None:
    paths = small.get("/schema/openapi.json").json()["paths"]
    body = paths["/v1/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    fields = body["properties"]
    assert fields["max_tokens"]["anyOf"] == [{"type": "integer", "minimum": 0}, {"type": "null"}]
    assert fields["top_p"]["anyOf"][0] == {"type": "number", "minimum": 0, "maximum": 1}
    assert fields["cache_salt"]["anyOf"][0]["maxLength"] == 1024
    assert body["required"] == ["prompt"]
    for path in OURS:
        answers = paths[path]["post"]["responses"]
        assert {"200", "400", "429", "500", "503"} <= set(answers)


@pytest.mark.hf
@pytest.mark.filterwarnings("ignore")
def test_answers_are_as_documented(small: Server) -> None:
    """Those that a made-up body seldom gets."""
    import schemathesis

    paths = small.get("/schema/openapi.json").json()
    schema = schemathesis.openapi.from_dict(paths)
    message = {"role": "user", "content": "a"}
    shared = {"n": 2, "max_tokens": 2, "return_token_ids": True, "prompt_logprobs": 1}
    for path, fields in (
        ("/v1/completions", {"prompt": ["ab", "c"], "echo": True, "logprobs": 1}),
        ("/v1/chat/completions", {"messages": [message], "logprobs": True, "top_logprobs": 1}),
    ):
        response = small.post(path, {**shared, **fields})
        assert response.status_code == 200
        schema[path]["POST"].validate_response(response)
