"""`/v1/completions` answered whole and streamed: text, stops, usage, log-probabilities."""

from __future__ import annotations

from .scripted_engine import chain
from .served import Server


def test_answers_have_openais_shape(server: Server) -> None:
    server.script.table = chain("@", "o", "k", 256)
    answer = server.complete("@", max_tokens=8)
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    assert answer["model"] == "m"
    assert answer["choices"] == [
        {"index": 0, "text": "ok", "logprobs": None, "finish_reason": "stop", "stop_reason": None}
    ]
    assert answer["usage"] == {
        "prompt_tokens": 1,
        "completion_tokens": 3,
        "total_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
