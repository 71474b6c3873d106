"""Who sends when: concurrency, rates, and a connection's faults."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from pegainfer_bench.client import LoadClient, LoadRun, Outcome, Target, drive
from pegainfer_bench.dataset import BenchRequest

from plugins.pegainfer_bench.tests.scripted_server import (
    DONE,
    ScriptedServer,
    Step,
    chunked,
    full_answer,
    token,
    usage,
    whole,
)


class Sender:
    """Takes 10 ms a request and counts."""

    def __init__(self) -> None:
        self.now = self.peak = 0
        self.sent_s: list[float] = []

    async def send(self, number: int) -> Outcome:
        self.sent_s.append(time.perf_counter())
        self.now += 1
        self.peak = max(self.peak, self.now)
        await asyncio.sleep(0.01)
        self.now -= 1
        return Outcome(asked_tokens=number)


@pytest.mark.parametrize("arrivals_s", [None, [0.001 * n for n in range(12)]])
def test_concurrency_is_kept(arrivals_s: list[float] | None) -> None:
    sender = Sender()
    run = asyncio.run(drive(range(12), sender.send, max_concurrency=3, arrivals_s=arrivals_s))
    assert sender.peak == 3
    assert [outcome.asked_tokens for outcome in run.outcomes] == list(range(12))
    assert run.duration_s >= 0.04


def test_arrivals_are_kept() -> None:
    sender = Sender()
    arrivals_s = [0.0, 0.03, 0.031, 0.08]
    begun_s = time.perf_counter()
    asyncio.run(drive(range(4), sender.send, arrivals_s=arrivals_s))
    for sent_s, arrival_s in zip(sender.sent_s, arrivals_s, strict=True):
        assert sent_s - begun_s >= arrival_s


def send(server: ScriptedServer, count: int = 1, timeout_s: float = 10) -> LoadRun:
    async def run() -> LoadRun:
        client = LoadClient(
            Target(host="127.0.0.1", port=server.port),
            "/v1/completions",
            is_chat=False,
            fields={"model": "m"},
            timeout_s=timeout_s,
        )
        request = BenchRequest(prompt=[1, 2], output_tokens=3)
        encoded = [(client.encode(request), 3)] * count
        try:
            return await drive(encoded, lambda pair: client.send(*pair), max_concurrency=1)
        finally:
            client.close()

    return asyncio.run(run())


def test_connections_are_kept(server: ScriptedServer) -> None:
    run = send(server, 5)
    assert all(outcome.ok and not outcome.is_short for outcome in run.outcomes)
    assert len(server.bodies) == 5


def test_an_idle_connection_that_was_closed_costs_nothing(server: ScriptedServer) -> None:
    # The server closes behind every answer, without having said so.
    server.answer = lambda body: [*full_answer(body), b""]
    assert [outcome.error for outcome in send(server, 5).outcomes] == [""] * 5


def test_times_are_those_of_arrival(server: ScriptedServer) -> None:
    def answer(body: dict[str, Any]) -> list[Step]:
        return chunked([0.05, token(), 0.03, token(), 0.03, token(), usage(2, 3), DONE])

    server.answer = answer
    (outcome,) = send(server).outcomes
    # Any event can be seen late, and the gap behind it is then the shorter: none is seen early.
    first_s, second_s, third_s = (time_s - outcome.sent_s for time_s in outcome.event_times_s)
    assert first_s >= 0.05 and second_s >= 0.08 and third_s >= 0.11
    assert outcome.ttft_s == pytest.approx(first_s) and outcome.e2el_s == pytest.approx(third_s)
    assert outcome.tpot_s == pytest.approx((third_s - first_s) / 2)
    assert outcome.itl_s == pytest.approx([second_s - first_s, third_s - second_s])


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (whole(b'{"error": {"message": "too long"}}', "400 Bad Request"), "HTTP 400: too long"),
        (whole(b'{"detail": 1}', "500 Oops"), 'HTTP 500: {"detail": 1}'),
        (whole(b"", "404 Not Found"), "HTTP 404"),
        ([*chunked([token()])[:2], b""], "closed the connection before the end"),
        ([b""], "closed the connection before the end"),
        ([b"SSH-2.0-hello\r\n"], "no HTTP"),
        (chunked([token(), 5.0]), "no whole answer within 0.3 s"),
    ],
)
def test_failures_are_told(server: ScriptedServer, answer: list[Step], error: str) -> None:
    server.answer = lambda body: answer
    (outcome,) = send(server, timeout_s=0.3).outcomes
    assert error in outcome.error and not outcome.ok
