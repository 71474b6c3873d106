"""Clients that leave at any moment, of requests of any kind: nothing of them is left.

`PEGAINFER_LEAVING_CLIENTS` sets how many leave.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import random
import socket
import struct
import time

import pytest

from pegainfer_core.testing.tiny import script, table_model
from tests.cases.conftest import BARE_TEMPLATE, Serve
from tests.cases.http_server import CHAT, COMPLETIONS, HttpServer

NUM_CLIENTS = int(os.environ.get("PEGAINFER_LEAVING_CLIENTS", "60"))
AT_ONCE = 16
LONGEST_STAY_S = 0.15
REST_S = 30.0


@pytest.fixture(scope="module")
def shared(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> HttpServer:
    """Few slots and few pages: some wait for either, and some are preempted."""
    folder = table_model(
        tmp_path_factory.mktemp("leaving") / "m",
        script("A", ["A"]),
        chat_template=BARE_TEMPLATE,
        max_position_embeddings=4096,
    )
    return serve(folder, num_kv_pages=300, max_num_seqs=8, max_prefill_tokens=64)


def leave_at_any_moment(server: HttpServer, seed: int) -> None:
    rng = random.Random(seed)
    prompt = "A" * rng.choice([1, 40, 800])
    body: dict[str, object] = {
        "max_tokens": rng.choice([1, 30, 2000]),
        "stream": rng.random() < 0.5,
        "n": rng.choice([1, 1, 3]),
        "cache_salt": f"{rng.randrange(4)}s",
    }
    path = rng.choice([COMPLETIONS, CHAT])
    if path == COMPLETIONS:
        body["prompt"] = rng.choice([prompt, [prompt, "A"]])
        body |= rng.choice([{}, {"logprobs": 2, "echo": True}])
    else:
        body |= {"messages": [{"role": "user", "content": prompt}], "logprobs": rng.random() < 0.3}
    raw = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(raw)}\r\n"
    whole = head.encode() + b"Content-Type: application/json\r\n\r\n" + raw
    with socket.create_connection(server.address, timeout=30) as sock:
        # Some leave inside their own request.
        sock.sendall(whole if rng.random() < 0.9 else whole[: rng.randrange(len(whole))])
        deadline_s = time.monotonic() + rng.uniform(0, LONGEST_STAY_S)
        if rng.random() < 0.5:
            sock.settimeout(LONGEST_STAY_S)
            with contextlib.suppress(TimeoutError):
                while time.monotonic() < deadline_s and sock.recv(4096):
                    pass
        else:
            time.sleep(max(deadline_s - time.monotonic(), 0))
        if rng.random() < 0.5:  # A reset instead of a goodbye.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_nothing_is_left_of_clients_that_leave(server: HttpServer) -> None:
    before = server.metric("request_success_total", finished_reason="abort")
    seeds = [random.SystemRandom().getrandbits(32) for _ in range(NUM_CLIENTS)]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(leave_at_any_moment, [server] * NUM_CLIENTS, seeds))
    server.wait_idle(REST_S)
    assert server.load() == (0, 0, 0)
    assert server.get("/health").json() == {"status": "ok"}
    num_steps = server.metric("engine_steps_total")
    assert server.metric("request_success_total", finished_reason="abort") > before
    time.sleep(0.2)
    assert server.metric("engine_steps_total") == num_steps, "nobody is worked for"
