"""A08: whatever a client waits for when it goes away, the engine stops working for it at once."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from pegainfer_core.testing.tiny import script, table_model
from tests.cases.http_server import COMPLETIONS, PROBE, TIMEOUT_S, HttpServer
from tests.cases.serve_process import serve_process

PAGES, PAGE = 4096, 16
#: KV for four such requests and no more, reserved at their start; each would run for many seconds.
MAX_TOKENS = PAGES * PAGE // 4 - 1
MOST_AT_ONCE = 4
ANSWER: dict[str, object] = {"prompt": "A", "max_tokens": MAX_TOKENS, "temperature": 0}
ROUNDS = 9  # for each of the six ways to wait: 54 clients
SOON_S = 20.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    """A real server with its engine process; `A` follows `A` for ever."""
    base = tmp_path_factory.mktemp("a08")
    folder = table_model(base / "m", script("A", ["A"]), max_position_embeddings=PAGES * PAGE)
    flags = f"--num-kv-pages {PAGES} --kv-reserve worst-case --max-prefill-tokens 64"
    with serve_process(folder, *flags.split(), log=base / "log") as started:
        server = started.wait_ready()
        yield server
        started.terminate()
        assert started.wait_exit(20) == 0, started.output()


class Client:
    """A connection whose end the test decides."""

    def __init__(self, server: HttpServer) -> None:
        self.sock = socket.create_connection(server.address, timeout=TIMEOUT_S)

    def post(self, **fields: object) -> None:
        body = json.dumps(fields).encode()
        head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        self.sock.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)

    def read_until(self, mark: bytes) -> None:
        data = b""
        while mark not in data:
            part = self.sock.recv(65536)
            assert part, data
            data += part

    def leave(self, *, rudely: bool) -> None:
        """Close; rudely is with a reset instead of a goodbye."""
        if rudely:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


def num_aborted(server: HttpServer) -> float:
    return server.metric("request_success_total", finished_reason="abort")


def wait_for_aborts(server: HttpServer, count: float) -> None:
    """The server counts a moment after the engine has let go."""
    server.wait_for(lambda: num_aborted(server) == count, SOON_S)


def wait_for_tokens(server: HttpServer, more_than: float) -> None:
    server.wait_for(lambda: server.metric("generation_tokens_total") > more_than)


def wait_for_load(
    server: HttpServer, running: int, waiting: int, timeout_s: float = TIMEOUT_S
) -> None:
    server.wait_for(lambda: server.load()[:2] == (running, waiting), timeout_s)


@contextlib.contextmanager
def filled(server: HttpServer, num_clients: int = MOST_AT_ONCE) -> Iterator[None]:
    """So many clients wait for long answers meanwhile."""
    clients = [Client(server) for _ in range(num_clients)]
    for client in clients:
        client.post(**ANSWER)
    wait_for_load(server, min(num_clients, MOST_AT_ONCE), max(num_clients - MOST_AT_ONCE, 0))
    yield
    for client in clients:
        client.leave(rudely=False)


def test_while_queued(server: HttpServer) -> None:
    with filled(server):
        for number in range(ROUNDS):
            before = num_aborted(server)
            client = Client(server)
            client.post(**ANSWER, stream=number % 3 == 0)
            wait_for_load(server, MOST_AT_ONCE, 1)
            client.leave(rudely=number % 2 == 0)
            wait_for_load(server, MOST_AT_ONCE, 0, SOON_S)
            wait_for_aborts(server, before + 1)


@pytest.mark.parametrize("stream", [False, True])
def test_in_prefill(server: HttpServer, stream: bool) -> None:
    for number in range(ROUNDS):
        before, num_generated = num_aborted(server), server.metric("generation_tokens_total")
        client = Client(server)
        prompt = f"{stream}{number}" + "A" * 30_000  # Unknown to the prefix cache: 470 steps.
        client.post(**{**ANSWER, "prompt": prompt}, stream=stream)
        wait_for_load(server, 1, 0)
        client.leave(rudely=number % 2 == 0)
        server.wait_idle(SOON_S)
        assert server.metric("generation_tokens_total") == num_generated
        wait_for_aborts(server, before + 1)


@pytest.mark.parametrize("stream", [False, True])
def test_in_decode(server: HttpServer, stream: bool) -> None:
    for number in range(ROUNDS):
        before, num_generated = num_aborted(server), server.metric("generation_tokens_total")
        client = Client(server)
        client.post(**ANSWER, stream=stream)
        if stream:
            client.read_until(b"data: ")
        wait_for_tokens(server, num_generated)
        client.leave(rudely=number % 2 == 0)
        server.wait_idle(SOON_S)
        wait_for_aborts(server, before + 1)
        assert server.metric("generation_tokens_total") < num_generated + MAX_TOKENS / 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["A" * 100, "A" * 30_000])
def test_with_four_samples(server: HttpServer, stream: bool, prompt: str) -> None:
    """In decode, all of them; in the prefill of a long prompt, where three wait for the first."""
    before, num_generated = num_aborted(server), server.metric("generation_tokens_total")
    client = Client(server)
    fields = {**ANSWER, "prompt": prompt, "max_tokens": MAX_TOKENS - 100, "n": 4}
    client.post(**fields, stream=stream, cache_salt=str(stream))
    if len(prompt) > 1000:
        wait_for_load(server, 1, 0)
    else:
        wait_for_load(server, MOST_AT_ONCE, 0)
        wait_for_tokens(server, num_generated + 8)
    client.leave(rudely=stream)
    server.wait_idle(SOON_S)
    wait_for_aborts(server, before + 4)


def test_on_a_connection_that_was_kept(server: HttpServer) -> None:
    for number in range(ROUNDS):
        before = num_aborted(server)
        client = Client(server)
        client.post(**{**ANSWER, "max_tokens": 2})
        client.read_until(b'"total_tokens":3')
        server.wait_idle(SOON_S)
        client.post(**ANSWER, stream=number % 3 == 0)
        wait_for_load(server, 1, 0)
        client.leave(rudely=number % 2 == 0)
        server.wait_idle(SOON_S)
        wait_for_aborts(server, before + 1)


def test_nothing_is_left(server: HttpServer) -> None:
    """After all of the above the server takes as many as it can hold, and then rests."""
    with filled(server, MOST_AT_ONCE + 2):
        assert server.load()[:2] == (MOST_AT_ONCE, 2)
    server.wait_idle(SOON_S)
    num_steps = server.metric("engine_steps_total")
    time.sleep(0.3)
    assert server.metric("engine_steps_total") == num_steps
    assert server.whole(COMPLETIONS, **PROBE)["usage"]["completion_tokens"] == 8
