"""KV events over ZeroMQ, read as vLLM's subscribers read theirs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
import pytest
import zmq

from pegainfer_core.contract import CoreOptions
from pegainfer_core.kv import ClearedBlocks, KvManager, open_kv
from pegainfer_core.kv.zmq_sink import ZmqSink
from pegainfer_core.weights import ConfigError
from tests.kv.test_manager import B, serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Frames = list[bytes]


class Client:
    """The other side's sockets, all closed in the end."""

    def __init__(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.sockets: list[zmq.Socket[bytes]] = []

    def socket(self, kind: int, connect: str = "") -> zmq.Socket[bytes]:
        socket = self.context.socket(kind)
        self.sockets.append(socket)
        socket.rcvtimeo = 5000
        if connect:
            socket.connect(connect)
        return socket

    def subscribe(self, endpoint: str, topic: bytes = b"") -> zmq.Socket[bytes]:
        socket = self.socket(zmq.SUB, endpoint)
        socket.subscribe(topic)
        return socket

    def replayed(self, endpoint: str, start: int) -> list[Frames]:
        """Frames of every reply to a request for what came from `start` on."""
        socket = self.socket(zmq.DEALER, endpoint)
        socket.send_multipart((b"", start.to_bytes(8, "big")))
        replies = [socket.recv_multipart()]
        while replies[-1][2] != b"\xff" * 8:
            replies.append(socket.recv_multipart())
        return replies


@pytest.fixture
def client() -> Iterator[Client]:
    client = Client()
    yield client
    for socket in client.sockets:
        socket.close(0)
    client.context.term()


def until_heard(kv: KvManager, socket: zmq.Socket[bytes]) -> Frames:
    """The first blocks told of: a subscription takes effect some time after it was made."""
    socket.rcvtimeo = 50
    for start in range(0, 100_000, B):
        serve(kv, list(range(start, start + B)))
        try:
            frames = socket.recv_multipart()
        except zmq.Again:
            continue
        if b"AllBlocksCleared" not in frames[2]:
            return frames
    raise AssertionError("nothing was heard")


def test_subscribers_get_numbered_batches_and_what_they_missed(
    tmp_path: Path, client: Client
) -> None:
    live, replay = f"ipc://{tmp_path}/live", f"ipc://{tmp_path}/replay"
    options = CoreOptions(kv_events=live, kv_events_replay=replay, kv_events_topic="kv@pod@model")
    kv = open_kv(1000, B, options)
    socket = client.subscribe(live, b"kv@")
    topic, number, payload = until_heard(kv, socket)
    assert topic == b"kv@pod@model"
    first = int.from_bytes(number, "big")
    assert first > 0
    [ts, [event], _] = msgspec.msgpack.decode(payload)
    assert abs(time.time() - ts) < 60
    assert (event["type"], event["block_size"]) == ("BlockStored", B)

    *missed, end = client.replayed(replay, 0)
    assert [frames[:2] for frames in missed] == [[b"", b"kv@pod@model"]] * len(missed)
    assert [int.from_bytes(frames[2], "big") for frames in missed] == list(range(len(missed)))
    assert end == [b"", b"", b"\xff" * 8, b""]
    assert msgspec.msgpack.decode(missed[0][3])[1] == [{"type": "AllBlocksCleared"}]
    assert missed[first][3] == payload
    assert client.replayed(replay, first)[0][2] == number
    assert len(client.replayed(replay, 10**9)) == 1
    kv.close()


def test_what_was_said_last_is_still_sent(tmp_path: Path, client: Client) -> None:
    endpoint = f"ipc://{tmp_path}/live"
    kv = open_kv(1000, B, CoreOptions(kv_events=endpoint, kv_events_encoding="array"))
    socket = client.subscribe(endpoint)
    until_heard(kv, socket)
    serve(kv, list(range(900_000, 900_000 + B)))
    kv.close()
    batches = []
    while socket.poll(500):
        batches.append(msgspec.msgpack.decode(socket.recv_multipart()[2]))
    assert batches[-1][1][0][0] == "BlockStored"
    assert batches[-1][1][0][3] == list(range(900_000, 900_000 + B))


def test_nonsense_on_the_replay_socket_is_ignored(tmp_path: Path, client: Client) -> None:
    replay = f"ipc://{tmp_path}/replay"
    sink = ZmqSink(f"ipc://{tmp_path}/live", replay=replay)
    sink.send(0, 1.0, [ClearedBlocks()])
    socket = client.socket(zmq.DEALER)
    socket.connect(replay)
    for frames in ([b"x"], [b"", b"", b"", b""], [b"", b"short"]):
        socket.send_multipart(frames)
    assert len(client.replayed(replay, 0)) == 2
    assert not socket.poll(0)
    sink.close()


def test_two_engines_cannot_have_one_port(client: Client) -> None:
    blocker = client.socket(zmq.PUB)
    port = blocker.bind_to_random_port("tcp://127.0.0.1")
    # An address without `*` is one to connect to, so the whole machine's is asked for.
    with pytest.raises(ConfigError, match=rf"--kv-events tcp://\*:{port} cannot be used: Addr"):
        ZmqSink(f"tcp://*:{port}")


def test_a_router_that_listens_is_connected_to(
    client: Client,
) -> None:
    socket = client.socket(zmq.SUB)
    socket.rcvtimeo = 5000
    socket.subscribe(b"")
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    kv = open_kv(1000, B, CoreOptions(kv_events=f"tcp://127.0.0.1:{port}"))
    assert msgspec.msgpack.decode(until_heard(kv, socket)[2])[1]
    kv.close()
