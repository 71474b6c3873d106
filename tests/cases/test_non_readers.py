"""Clients that stop reading hold KV pages only until the stall limit; others then get them."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

from pegainfer_core.testing.tiny import script, table_model
from tests.cases.conftest import Serve
from tests.cases.http_server import COMPLETIONS

PAGES, PAGE = 4096, 16
MOST_AT_ONCE = 4
#: KV for four such requests and no more, reserved at their start; each would run for many seconds.
MAX_TOKENS = PAGES * PAGE // MOST_AT_ONCE - 1


def test_a_full_pool_of_non_readers(serve: Serve, tmp_path: Path) -> None:
    folder = table_model(tmp_path / "m", script("A", ["A"]), max_position_embeddings=PAGES * PAGE)
    server = serve(folder, stall_timeout_s=0.5, num_kv_pages=PAGES, kv_reserve="worst-case")
    fields = {"prompt": "A", "max_tokens": MAX_TOKENS, "temperature": 0, "stream": True}
    body = json.dumps({**fields, "logprobs": 20}).encode()
    head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    clients = []
    for _ in range(MOST_AT_ONCE):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(server.address)
        client.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
        clients.append(client)
    server.wait_for(lambda: server.load()[0] == MOST_AT_ONCE)
    started_s = time.monotonic()
    answer = server.whole(COMPLETIONS, prompt="A", max_tokens=PAGE, temperature=0)
    assert answer["choices"][0]["text"] == "A" * PAGE
    assert time.monotonic() - started_s < 20
    server.wait_idle()
    assert server.metric("generation_tokens_total") < MOST_AT_ONCE * MAX_TOKENS / 2
    names = ("stalled_connections_total", "slow_reader_aborts_total")
    assert sum(map(server.metric, names)) == MOST_AT_ONCE
    for client in clients:
        client.close()
