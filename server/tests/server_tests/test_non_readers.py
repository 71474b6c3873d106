"""Clients that stop reading: nobody else notices, memory stays bounded, their requests end."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import psutil

from .raw_http import RawConnection
from .scripted_engine import Script
from .served import Server, serving

COMPLETIONS = "/v1/completions"
NUM_NON_READERS = 64
ENDLESS = {ord("@"): ord("a"), ord("a"): ord("a")}
BODY = {"prompt": "@", "max_tokens": 1_000_000, "ignore_eos": True, "stream": True}


@contextlib.contextmanager
def non_readers(server: Server, count: int, **fields: object) -> Iterator[list[RawConnection]]:
    """So many clients that ask for an answer, an endless one unless told, and take its head."""
    connections = [RawConnection(server.address, receive_bytes=4096) for _ in range(count)]
    try:
        for connection in connections:
            connection.post(COMPLETIONS, {**BODY, **fields})
        if "max_tokens" not in fields:  # or they may have ended before anybody looks
            server.wait_for(lambda: server.metric("num_requests_running") >= count)
        yield connections
    finally:
        for connection in connections:
            connection.sock.close()


def gaps_s(server: Server, num_tokens: int) -> list[float]:
    """Times between the events of one client that reads, sorted."""
    with RawConnection(server.address) as reader:
        reader.post(COMPLETIONS, {**BODY, "max_tokens": num_tokens})
        reader.read_head()
        arrivals = []
        while chunk := reader.read_chunk():
            arrivals += [time.monotonic()] * chunk.count(b"data: {")
    assert len(arrivals) == num_tokens
    return sorted(later - earlier for earlier, later in pairwise(arrivals))


def num_clogged(server: Server) -> int:
    assert server.state.model is not None
    return sum(stream.writing for stream in server.state.model.client._streams.values())


def test_nobody_else_waits_and_memory_is_bounded(folder: Path) -> None:
    script = Script(table=ENDLESS, step_s=0.005)
    with serving(folder, script, max_model_len=1 << 20, send_buffer_bytes=4096) as server:
        alone = gaps_s(server, 60)
        memory = psutil.Process(os.getpid())
        before_bytes = memory.memory_info().rss
        with non_readers(server, NUM_NON_READERS, logprobs=20):
            server.wait_for(lambda: num_clogged(server) == NUM_NON_READERS)
            crowded = gaps_s(server, 60)
            assert num_clogged(server) == NUM_NON_READERS
            grown_bytes = memory.memory_info().rss - before_bytes
    assert crowded[len(crowded) // 2] < 2 * alone[len(alone) // 2] + 0.005
    assert crowded[-5] < 2 * alone[-5] + 0.05
    assert grown_bytes < NUM_NON_READERS * (2 << 20)


def test_a_client_that_takes_nothing_is_cut_off(folder: Path) -> None:
    """Long before enough has piled up for that: nothing but its own window is full."""
    script = Script(table=ENDLESS, step_s=0.002)
    with serving(
        folder, script, max_model_len=1 << 20, stall_timeout_s=0.3, send_buffer_bytes=4096
    ) as server:
        with non_readers(server, 4):
            server.wait_for(lambda: server.state.num_open == 0)
            assert server.metric("num_requests_running") == 0
            assert server.metric("kv_cache_usage_perc") == 0
        assert server.metric("request_success_total", finished_reason="abort") == 4
        assert server.metric("stalled_connections_total") == 4
        script.tokens_per_step = 50
        # An answer that is complete, but that nobody takes, does not stay in memory either.
        with non_readers(server, 1, stream=False, max_tokens=500, logprobs=5) as (clogged,):
            server.wait_for(lambda: len(server.records) == 5)
            assert server.records[4].finish_reason == "length"
            mine = clogged.sock.getsockname()
            assert mine in peers()
            server.wait_for(lambda: mine not in peers())
            assert server.metric("stalled_connections_total") == 5
        # Who reads is not hurried, however long nothing comes.
        script.hold = True
        with RawConnection(server.address) as patient:
            patient.post(COMPLETIONS, {**BODY, "max_tokens": 3})
            time.sleep(0.45)
            script.hold = False
            assert patient.read_head()[0] == 200
            assert b"".join(patient.read_chunks()).endswith(b"data: [DONE]\n\n")


def peers() -> set[tuple[str, int]]:
    """Who this process's server is connected to."""
    connections = psutil.Process(os.getpid()).net_connections("tcp")
    return {tuple(entry.raddr) for entry in connections if entry.raddr}
