"""`/v1/completions`: text, stops, limits, usage and log-probabilities, whole and streamed."""

from __future__ import annotations

from typing import Any

import pytest

from .scripted_engine import chain
from .served import Server

PATH = "/v1/completions"


def both(server: Server, prompt: object, **fields: object) -> dict[str, Any]:
    """Ask whole and streamed, check that the answers agree, return the whole one."""
    answer = server.complete(prompt, **fields)
    streamed = server.events(PATH, prompt=prompt, **fields, stream_options={"include_usage": True})
    choice = answer["choices"][0]
    *chunks, last = streamed
    assert last["choices"] == []
    assert last["usage"] == answer["usage"]
    choices = [chunk["choices"][0] for chunk in chunks]
    assert "".join(part["text"] for part in choices) == choice["text"]
    assert all("usage" not in chunk for chunk in chunks)
    assert [part["finish_reason"] for part in choices[:-1]] == [None] * (len(choices) - 1)
    assert choices[-1]["finish_reason"] == choice["finish_reason"]
    assert choices[-1]["stop_reason"] == choice["stop_reason"]
    if choice["logprobs"] is not None:
        for name, values in choice["logprobs"].items():
            assert [item for part in choices for item in part["logprobs"][name]] == values
    if "token_ids" in choice:
        assert [item for part in choices for item in part["token_ids"]] == choice["token_ids"]
    return answer


def text_of(answer: dict[str, Any]) -> str:
    text: str = answer["choices"][0]["text"]
    return text


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


def test_characters_of_several_tokens_stay_whole(server: Server) -> None:
    text = "é🧭한"
    server.script.table = chain("n", *text.encode(), 256)
    assert text_of(both(server, "n", max_tokens=32)) == text
    chunks = server.events(PATH, prompt="n", max_tokens=32)
    # An event for every token, most of them empty while a character is incomplete.
    assert len(chunks) == len(text.encode()) + 1
    assert not any("\ufffd" in chunk["choices"][0]["text"] for chunk in chunks)


def test_prompt_text_never_leaks_into_the_answer(server: Server) -> None:
    server.script.table = chain(0x9F, 0xA7, 0xAD, "!", 256)
    answer = both(server, [72, 105, 32, 240, 159], max_tokens=8)
    assert "Hi" not in text_of(answer)
    assert text_of(answer).endswith("!")


@pytest.mark.parametrize(
    ("fields", "text", "reason"),
    [
        ({"stop": ["##"]}, "Aab", "##"),
        ({"stop": ["##"], "include_stop_str_in_output": True}, "Aab##", "##"),
        ({"stop": "##"}, "Aab", "##"),
        ({"stop": ["cd", "##"]}, "Aab", "##"),
        ({"stop": []}, "Aab##cdZ", None),
        ({"stop": None}, "Aab##cdZ", None),
    ],
)
def test_stop_strings_are_found_inside_tokens(
    server: Server, fields: dict[str, Any], text: str, reason: str | None
) -> None:
    server.script.table = chain("@", "A", 260, "Z", 256)
    choice = both(server, "@", max_tokens=16, **fields)["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == (
        text,
        "stop",
        reason,
    )


def test_a_stop_string_ends_ids_logprobs_and_usage_at_its_token(server: Server) -> None:
    server.script.table = chain("@", "a", "b", "c", "d", "e", 256)
    server.script.tokens_per_step = 4
    answer = both(server, "@", stop="bc", max_tokens=16, logprobs=0, return_token_ids=True)
    choice = answer["choices"][0]
    assert choice["text"] == "a"
    assert choice["token_ids"] == list(b"abc")
    assert choice["logprobs"]["tokens"] == ["a", "b", "c"]
    assert answer["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize(
    ("fields", "text", "reason"),
    [
        ({"stop_token_ids": [257]}, "ok.", 257),
        ({"stop": ["<turn>"]}, "ok.", "<turn>"),
        ({"stop_token_ids": [257], "skip_special_tokens": False}, "ok.", 257),
        (
            {
                "stop_token_ids": [257],
                "skip_special_tokens": False,
                "include_stop_str_in_output": True,
            },
            "ok.<turn>",
            257,
        ),
    ],
)
def test_special_tokens_as_stops(
    server: Server, fields: dict[str, Any], text: str, reason: object
) -> None:
    server.script.table = chain("@", "o", "k", ".", 257, "x", 256)
    choice = both(server, "@", max_tokens=16, **fields)["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == (
        text,
        "stop",
        reason,
    )


def test_added_tokens_are_plain_text(server: Server) -> None:
    server.script.table = chain("@", 258, "o", "k", 259, "1", 256)
    assert text_of(both(server, "@")) == "<think>ok</think>1"
    server.script.table = chain("@", " ", "a", 256)
    assert text_of(both(server, "@")) == " a"


def test_ignore_eos_leaves_the_clients_stop_ids_active(server: Server) -> None:
    server.script.table = chain("@", "A", 256, "B", 257, "C")
    ignoring: dict[str, Any] = {"ignore_eos": True, "max_tokens": 5}
    answer = both(server, "@", **ignoring)
    assert (text_of(answer), answer["choices"][0]["finish_reason"]) == ("ABC", "length")
    assert answer["usage"]["completion_tokens"] == 5
    stopped = both(server, "@", **ignoring, stop_token_ids=[257])["choices"][0]
    assert (stopped["text"], stopped["finish_reason"]) == ("AB", "stop")


def test_min_tokens_hold_back_stop_strings(server: Server) -> None:
    server.script.table = chain("@", "a", "b", "c", "d", 256)
    assert text_of(both(server, "@", stop=["a", "d"], min_tokens=2)) == "abc"


def test_limits(server: Server) -> None:
    server.script.table = {ord("A"): ord("A")}
    answer = both(server, "A")
    assert answer["usage"]["completion_tokens"] == 16
    assert answer["choices"][0]["finish_reason"] == "length"
    assert both(server, "A", max_tokens=None)["usage"]["completion_tokens"] == 16
    assert both(server, "A", max_tokens=3)["usage"]["completion_tokens"] == 3


def test_the_end_token_is_counted_but_not_shown(server: Server) -> None:
    server.script.table = chain("@", "a", 256)
    answer = both(server, "@", logprobs=1, return_token_ids=True, skip_special_tokens=False)
    choice = answer["choices"][0]
    assert choice["text"] == "a"
    assert choice["token_ids"] == [97, 256]
    assert len(choice["logprobs"]["tokens"]) == answer["usage"]["completion_tokens"] == 2
    assert choice["prompt_token_ids"] == [64]


def test_logprobs_name_the_chosen_token_and_the_likely_ones(server: Server) -> None:
    server.script.table = chain("@", "a", 0xE9, "b", 256)
    logprobs = both(server, "@", logprobs=2, max_tokens=3)["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["a", "bytes:\\xe9", "b"]
    assert logprobs["token_logprobs"] == [-0.25] * 3
    assert logprobs["top_logprobs"][0] == {"a": -0.25, "b": -1.25}
    # The two characters that the lone byte became start where it started.
    assert logprobs["text_offset"] == [0, 1, 1]
    by_id = both(server, "@", logprobs=0, max_tokens=1, return_tokens_as_token_ids=True)
    assert by_id["choices"][0]["logprobs"]["top_logprobs"] == [{"token_id:97": -0.25}]


def test_echo_shows_the_prompt_first(server: Server) -> None:
    server.script.table = chain("i", "!", 256)
    assert text_of(both(server, "Hi", echo=True)) == "Hi!"
    assert text_of(both(server, [72, 105], echo=True)) == "Hi!"
    answer = both(server, "Hi", echo=True, return_token_ids=True, max_tokens=1)
    assert answer["choices"][0]["token_ids"] == [ord("!")]


def test_echo_scores_the_prompt(server: Server) -> None:
    server.script.table = chain("i", "!", 256)
    answer = both(server, "Hi", echo=True, logprobs=1, max_tokens=0)
    logprobs = answer["choices"][0]["logprobs"]
    assert text_of(answer) == "Hi"
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 0
    assert logprobs["tokens"] == ["H", "i"]
    assert logprobs["token_logprobs"] == [None, -0.25]
    assert logprobs["top_logprobs"] == [None, {"i": -0.25}]
    assert logprobs["text_offset"] == [0, 1]
    scored = both(server, "Hi", echo=True, logprobs=1, max_tokens=1)["choices"][0]["logprobs"]
    assert scored["tokens"] == ["H", "i", "!"]
    assert scored["text_offset"] == [0, 1, 2]


def test_prompt_logprobs(server: Server) -> None:
    answer = server.complete("Hi", prompt_logprobs=2, max_tokens=1)
    first, second = answer["choices"][0]["prompt_logprobs"]
    assert first is None
    assert second == {
        "105": {"logprob": -0.25, "rank": 1, "decoded_token": "i"},
        "106": {"logprob": -1.25, "rank": 2, "decoded_token": "j"},
    }
    assert answer["choices"][0]["logprobs"] is None


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": None}])
def test_usage_comes_only_when_asked_for(server: Server, options: object) -> None:
    server.script.table = chain("@", "a", 256)
    fields = {} if options is None else {"stream_options": options}
    chunks = server.events(PATH, prompt="@", **fields)
    assert all(chunk["choices"] and "usage" not in chunk for chunk in chunks)


def test_continuous_usage_counts_up(server: Server) -> None:
    server.script.table = chain("@", "a", "b", 256)
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = server.events(PATH, prompt="@", stream_options=options)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == 3


def test_cached_tokens_are_equal_in_both_modes(server: Server) -> None:
    server.script.cached_tokens = 16
    answer = both(server, "x" * 33)
    assert answer["usage"]["prompt_tokens"] == 33
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 16


def test_truncation_keeps_the_end_of_the_prompt(server: Server) -> None:
    server.complete("abcdef", truncate_prompt_tokens=2)
    assert server.script.requests[-1].prompt_token_ids == list(b"ef")
    server.complete("x" * 5000, truncate_prompt_tokens=-1, max_tokens=6)
    assert len(server.script.requests[-1].prompt_token_ids) == 4090
    echoed = both(server, "abcdef", truncate_prompt_tokens=2, echo=True)
    assert text_of(echoed) == "ef"


def test_fields_reach_the_engine(server: Server) -> None:
    server.complete(
        "a",
        temperature=0.5,
        top_p=0.9,
        top_k=7,
        min_p=0.1,
        seed=11,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        repetition_penalty=1.1,
        logit_bias={"65": 5, "66": -1.5},
        allowed_token_ids=[65, 66],
        bad_words=["xy"],
        cache_salt="pepper",
        priority=3,
        request_id="my-id",
        user="somebody",
    )
    request = server.script.requests[-1]
    params = request.params
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.5, 0.9, 7, 0.1)
    assert (params.seed, params.presence_penalty, params.frequency_penalty) == (11, 0.5, -0.5)
    assert params.repetition_penalty == 1.1
    assert params.logit_bias == {65: 5.0, 66: -1.5}
    assert params.allowed_token_ids == [65, 66]
    assert params.bad_token_sequences == [list(b"xy"), list(b" xy")]
    assert (request.cache_salt, request.priority, request.external_id) == ("pepper", 3, "my-id")
    assert request.eos_token_ids == [256]


def test_copies_in_flight_do_not_mix(server: Server) -> None:
    import concurrent.futures

    text = "é🧭한"
    server.script.table = chain("n", *text.encode(), 256)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: both(server, "n", max_tokens=32), range(8)))
    assert [text_of(answer) for answer in answers] == [text] * 8
