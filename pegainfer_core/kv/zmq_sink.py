"""KV events over ZeroMQ, framed as vLLM frames them. Needs pyzmq (the extra `kv-events`).

A publisher sends [topic, number, batch]. Whoever missed something asks the replay socket with
[empty, first number wanted], and is sent [empty, topic, number, batch] for every batch that is
still held, then [empty, empty, -1, empty]. Numbers take 8 bytes, the highest first.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING

import zmq

from pegainfer_core.kv.event_wire import EventEncoder
from pegainfer_core.weights import ConfigError

if TYPE_CHECKING:
    from pegainfer_core.kv.event_log import KvEvent
    from pegainfer_core.kv.event_wire import EventEncoding

HELD_BATCHES = 10_000
_MAX_UNSENT = 100_000
_LINGER_MS = 1000
_END = (-1).to_bytes(8, "big", signed=True)

logger = logging.getLogger(__name__)


class ZmqSink:
    """Publishes every batch; implements `KvEventSink`.

    A subscriber that is too slow loses batches (ZeroMQ drops them), and the numbers tell it so.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        replay: str | None = None,
        topic: str = "",
        encoding: EventEncoding = "map",
    ) -> None:
        """Open the sockets.

        Args:
            endpoint: To bind when it has a `*` or `::` or is no tcp, else to connect to.
            replay: Endpoint to bind for replays; None for none.
            topic: First frame of every message.
            encoding: Of the events.

        Raises:
            ConfigError: An endpoint cannot be used.
        """
        self._encoder = EventEncoder(encoding)
        self._topic = topic.encode()
        self._held: deque[tuple[int, bytes]] = deque(maxlen=HELD_BATCHES)
        self._held_lock = threading.Lock()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._publisher = self._context.socket(zmq.PUB)
        self._publisher.set_hwm(_MAX_UNSENT)
        self._publisher.linger = _LINGER_MS
        connects = endpoint.startswith("tcp://") and "*" not in endpoint and "::" not in endpoint
        self._open(self._publisher, endpoint, "--kv-events", connects)
        self._replayer: threading.Thread | None = None
        if replay is not None:
            router = self._context.socket(zmq.ROUTER)
            router.linger = 0
            self._open(router, replay, "--kv-events-replay", False)
            self._replayer = threading.Thread(
                target=self._serve_replays, args=(router,), name="pegainfer-kv-replay", daemon=True
            )
            self._replayer.start()

    def send(self, seq: int, ts: float, events: list[KvEvent]) -> None:
        """Publish a batch, and hold it for replays."""
        payload = self._encoder.message(ts, events)
        with self._held_lock:
            self._held.append((seq, payload))
        self._publisher.send_multipart((self._topic, _number(seq), payload))

    def close(self) -> None:
        """Send what is left, for at most a second, and close the sockets."""
        self._publisher.close()
        # Ends the wait of the replayer, which closes its own socket.
        self._context.term()
        if self._replayer is not None:
            self._replayer.join()

    def _open(self, socket: zmq.Socket[bytes], endpoint: str, flag: str, connects: bool) -> None:
        try:
            if connects:
                socket.connect(endpoint)
            else:
                socket.bind(endpoint)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise ConfigError(f"{flag} {endpoint} cannot be used: {error.strerror}") from error

    def _serve_replays(self, router: zmq.Socket[bytes]) -> None:
        try:
            while True:
                request = router.recv_multipart()
                try:
                    self._replay(router, request)
                except zmq.ContextTerminated:
                    raise
                except zmq.ZMQError as error:
                    logger.warning("a replay of KV events failed: %s", error)
        except zmq.ContextTerminated:
            router.close()

    def _replay(self, router: zmq.Socket[bytes], request: list[bytes]) -> None:
        if len(request) != 3 or len(request[2]) != 8:
            logger.warning("ignored a replay request of %d frames", len(request))
            return
        client, start = request[0], int.from_bytes(request[2], "big")
        with self._held_lock:
            held = [batch for batch in self._held if batch[0] >= start]
        for seq, payload in held:
            router.send_multipart((client, b"", self._topic, _number(seq), payload))
        router.send_multipart((client, b"", b"", _END, b""))


def _number(seq: int) -> bytes:
    return seq.to_bytes(8, "big")
