"""How many tokens a second the front end can stream: a counting client on raw sockets.

    python tools/bench/front_end_ceiling.py --url http://127.0.0.1:8000 --streams 64 256

Point it at a server with a zero-delay engine (`pegainfer serve` on an echo model).
Prints one JSON line a run: tokens and events a second, and requests a second for short answers.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import time
from urllib.parse import urlsplit

ANSWER_END = b"0\r\n\r\n"


class Counter:
    """One connection: counts events, remembers the tail to see the end of the response."""

    def __init__(self, address: tuple[str, int], request: bytes) -> None:
        self.sock = socket.create_connection(address)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request = request
        self.num_events = 0
        self.num_answers = 0
        self.tail = b""

    def ask(self) -> None:
        """Send the request once more."""
        self.sock.sendall(self.request)

    def read(self) -> bool:
        """Take what has arrived; True when the response is complete."""
        data = self.sock.recv(1 << 18)
        if not data:
            raise ConnectionError("the server closed the connection")
        self.num_events += data.count(b'"text"')
        self.tail = (self.tail + data)[-256:]
        if not self.tail.endswith(ANSWER_END):
            return False
        if b"[DONE]" not in self.tail:
            raise RuntimeError(f"the stream did not end well: {self.tail!r}")
        self.num_answers += 1
        self.tail = b""
        return True


def request_bytes(address: tuple[str, int], max_tokens: int) -> bytes:
    body = {"prompt": "abcdefgh", "max_tokens": max_tokens, "ignore_eos": True, "stream": True}
    encoded = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(encoded)}\r\n\r\n"
    return head.encode() + encoded


def measure(
    address: tuple[str, int], streams: int, max_tokens: int, answers_each: int
) -> dict[str, int | float]:
    """Run `streams` connections, each asking `answers_each` times."""
    request = request_bytes(address, max_tokens)
    counters = [Counter(address, request) for _ in range(streams)]
    selector = selectors.EpollSelector()
    for counter in counters:
        selector.register(counter.sock, selectors.EVENT_READ, counter)
    started_s = time.perf_counter()
    for counter in counters:
        counter.ask()
    num_open = streams
    while num_open:
        for key, _ in selector.select():
            counter = key.data
            if counter.read():
                if counter.num_answers == answers_each:
                    selector.unregister(counter.sock)
                    num_open -= 1
                else:
                    counter.ask()
    took_s = time.perf_counter() - started_s
    for counter in counters:
        counter.sock.close()
    num_tokens = streams * answers_each * max_tokens
    return {
        "streams": streams,
        "max_tokens": max_tokens,
        "tokens_per_s": round(num_tokens / took_s),
        "events_per_s": round(sum(counter.num_events for counter in counters) / took_s),
        "requests_per_s": round(streams * answers_each / took_s),
        "took_s": round(took_s, 2),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--streams", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--tokens", type=int, default=400_000, help="tokens a run")
    args = parser.parse_args()
    parts = urlsplit(args.url)
    address = (str(parts.hostname), int(parts.port or 80))
    measure(address, 8, 64, 1)
    for streams in args.streams:
        print(json.dumps(measure(address, streams, args.tokens // streams, 1)), flush=True)
    print(json.dumps(measure(address, 64, 1, 30)), flush=True)


if __name__ == "__main__":
    main()
