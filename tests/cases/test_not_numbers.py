"""A model that computes NaN: its requests fail and say why, and nobody else notices.

Served as text, NaN looks like an endless run of the first token, such as `!!!`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pegainfer_qwen3.engine import LoadedModel

from pegainfer_core.plugin import PluginHost
from pegainfer_core.testing.tiny import script, table_model
from tests.cases.http_server import COMPLETIONS, HttpServer, JsonObject, error_of
from tests.cases.loaded_models import values
from tests.cases.serving import serving

#: `x` is the token whose embedding is damaged, and what `p` leads to.
GOOD, LEADS_TO_BAD, BAD = "A", "p", "x"
GREEDY: JsonObject = {"temperature": 0, "max_tokens": 8}


@pytest.fixture
def server(
    tmp_path: Path, qwen3_host: PluginHost, loaded: list[LoadedModel]
) -> Iterator[HttpServer]:
    """So few pages that those of failed requests are used again at once."""
    table = script(GOOD, [GOOD]) | script(LEADS_TO_BAD, [BAD])
    folder = table_model(tmp_path / "m", table)
    with serving(folder, qwen3_host, num_kv_pages=8) as made:
        values(loaded[0].weights.embedding)[ord(BAD)] = np.nan
        yield made


def test_requests_with_nan_fail(server: HttpServer) -> None:
    for sampling in ({}, {"temperature": 1}, {"logprobs": 2}, {"frequency_penalty": 0.5}):
        for stream in (False, True):
            fields = {"prompt": f"{GOOD * 40}{BAD}", **GREEDY, **sampling, "stream": stream}
            error = error_of(server.post(COMPLETIONS, fields), 500)
            assert error["code"] == "internal_error"
            assert "logits are not numbers (NaN)" in error["message"]
            assert server.complete(GOOD * 40, **GREEDY).text == GOOD * 8
    server.wait_idle()
    assert server.get("/health").status_code == 200


def test_a_stream_that_comes_to_nan_ends_in_an_error(server: HttpServer) -> None:
    *before, last = server.events(COMPLETIONS, prompt=LEADS_TO_BAD, **GREEDY)
    assert [event["choices"][0]["text"] for event in before] == [BAD]
    assert last["error"]["code"] == "internal_error"


def test_a_prompt_is_not_scored_with_nan(server: HttpServer) -> None:
    prompt = f"{GOOD}{BAD}{GOOD}"
    for fields in ({"echo": True, "logprobs": 1}, {"prompt_logprobs": 0}):
        asked = {"prompt": prompt, "max_tokens": 0, **fields}
        assert "not numbers" in error_of(server.post(COMPLETIONS, asked), 500)["message"]
    scored = server.whole(COMPLETIONS, prompt=GOOD * 3, max_tokens=0, echo=True, logprobs=1)
    assert None not in scored["choices"][0]["logprobs"]["token_logprobs"][1:]


def test_batch_mates_are_unharmed(server: HttpServer) -> None:
    body = {"prompt": [GOOD, GOOD], **GREEDY}
    error_of(server.post(COMPLETIONS, {**body, "prompt": [GOOD, BAD]}), 500)
    assert [c["text"] for c in server.whole(COMPLETIONS, **body)["choices"]] == [GOOD * 8] * 2
