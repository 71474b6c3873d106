"""Reading an answer's events, however the bytes are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pegainfer_bench.client import AnswerReader, Outcome

from plugins.pegainfer_bench.tests.scripted_server import DONE, event, token, usage


def read(stream: bytes, *, is_chat: bool = False) -> Outcome:
    reader = AnswerReader(Outcome(asked_tokens=3), is_chat=is_chat)
    reader.feed(stream, 1.0)
    reader.finish()
    return reader.outcome


def chat(finish_reason: str | None = None, **delta: object) -> bytes:
    return event(choices=[{"index": 0, "delta": delta, "finish_reason": finish_reason}])


@given(st.lists(st.integers(1, 30), max_size=40))
def test_cuts_do_not_matter(sizes: list[int]) -> None:
    stream = b": ping\n\n" + token("a") + token("") + token("\u00e9") + usage(7, 3, 4) + DONE
    reader = AnswerReader(Outcome(asked_tokens=3), is_chat=False)
    now_s, rest = 0.0, stream
    for size in [*sizes, len(stream)]:
        now_s += 1
        reader.feed(rest[:size], now_s)
        rest = rest[size:]
    reader.finish()
    outcome = reader.outcome
    assert outcome.ok and not outcome.is_short and outcome.has_usage
    assert (outcome.prompt_tokens, outcome.output_tokens, outcome.cached_tokens) == (7, 3, 4)
    assert len(outcome.event_times_s) == 3 == len(outcome.itl_s) + 1
    assert outcome.event_times_s == sorted(outcome.event_times_s)


def test_carriage_returns_and_events_behind_the_end() -> None:
    stream = token().replace(b"\n", b"\r\n") + DONE + token() + b"data: {broken\n\n"
    outcome = read(stream)
    assert outcome.ok and len(outcome.event_times_s) == 1


def test_without_usage_events_are_counted() -> None:
    outcome = read(token() * 2 + DONE)
    assert outcome.output_tokens == 2 and not outcome.has_usage and outcome.is_short


def test_chat_time_begins_with_content_not_with_the_role() -> None:
    outcome = read(chat(role="assistant", content="") + chat(content="hi") + DONE, is_chat=True)
    assert len(outcome.event_times_s) == 1
    both = read(chat(role="assistant", content="hi"), is_chat=True)
    assert len(both.event_times_s) == 1
    thinking = read(chat(role="assistant", reasoning_content="hm"), is_chat=True)
    assert len(thinking.event_times_s) == 1
    ended = read(chat("length", content=""), is_chat=True)
    assert len(ended.event_times_s) == 1


@pytest.mark.parametrize(
    ("stream", "error"),
    [
        (b"", "no event"),
        (DONE, "no event"),
        (usage(1, 0) + DONE, "no event"),
        (token() + event(error={"message": "engine  died", "code": 1}), "engine died"),
        (event(error={"error": {"message": "nested"}}), "nested"),
        (token() + event(error="odd"), '"odd"'),
        (b"data: {broken\n\n", "cannot be read"),
        (b'data: {"choices": 3}\n\n', "cannot be read"),
        (b"data: \xff\n\n", "cannot be read"),
    ],
)
def test_what_makes_a_request_fail(stream: bytes, error: str) -> None:
    outcome = read(stream)
    assert not outcome.ok and error in outcome.error and not outcome.is_short


def test_an_error_of_null_is_none() -> None:
    assert read(event(error=None, choices=[{"text": "x"}]) + DONE).ok
