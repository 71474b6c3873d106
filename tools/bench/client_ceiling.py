"""How many events a second `pegainfer bench serve`'s client can follow, against a scripted server.

    python tools/bench/client_ceiling.py --streams 64 256

The server is a process of its own that knows nothing: it sends each stream one prepared event after
the other, all streams in turn, as fast as they are taken. Prints one JSON line a run: events a
second, and the processor time that an event costs the client.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import time
from typing import TYPE_CHECKING

import uvloop
from pegainfer_bench.client import LoadClient, Target, drive
from pegainfer_bench.dataset import BenchRequest

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    b"Cache-Control: no-store\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def chunk(event: dict[str, object] | None) -> bytes:
    text = "[DONE]" if event is None else json.dumps(event, separators=(",", ":"))
    data = f"data: {text}\n\n".encode()
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def completion(**fields: object) -> dict[str, object]:
    head = {"id": "cmpl-0123456789abcdef", "object": "text_completion", "created": 1796000000}
    return {**head, "model": "m", **fields}


CHOICE = {"index": 0, "text": " word", "logprobs": None, "finish_reason": None}
EVENT = chunk(completion(choices=[CHOICE]))


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, events: int) -> None:
    """Answer every request of a connection with so many events."""
    usage = {"prompt_tokens": 8, "completion_tokens": events, "total_tokens": 8 + events}
    tail = chunk(completion(choices=[], usage=usage)) + chunk(None) + b"0\r\n\r\n"
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.split(b"\r\n") if b"Content-Length" in line)
            await reader.readexactly(int(length.split(b":")[1]))
            writer.write(HEAD)
            for _ in range(events):
                writer.write(EVENT)
                await asyncio.sleep(0)
                await writer.drain()
            writer.write(tail)
    except asyncio.IncompleteReadError:
        writer.close()


def serve(port: Connection, events: int) -> None:
    async def run() -> None:
        server = await asyncio.start_server(
            lambda reader, writer: answer(reader, writer, events), "127.0.0.1", 0
        )
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


async def measure(port: int, streams: int, events: int, rounds: int) -> dict[str, object]:
    client = LoadClient(
        Target(host="127.0.0.1", port=port),
        "/v1/completions",
        is_chat=False,
        fields={"model": "m"},
        timeout_s=120,
    )
    request = BenchRequest(prompt=[1] * 8, output_tokens=events)
    requests = [(client.encode(request), events)] * (streams * rounds)
    cpu_s = time.process_time()
    run = await drive(requests, lambda pair: client.send(*pair), max_concurrency=streams)
    cpu_s = time.process_time() - cpu_s
    client.close()
    failed = [outcome.error for outcome in run.outcomes if outcome.error]
    assert not failed, failed[0]
    count = sum(len(outcome.event_times_s) for outcome in run.outcomes)
    assert count == streams * rounds * events
    return {
        "streams": streams,
        "events": count,
        "events_per_s": round(count / run.duration_s),
        "client_us_an_event": round(1e6 * cpu_s / count, 2),
        "client_busy": round(cpu_s / run.duration_s, 2),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--streams", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--events", type=int, default=256, help="events of an answer")
    parser.add_argument("--rounds", type=int, default=8, help="answers of a stream")
    args = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=serve, args=(theirs, args.events), daemon=True
    )
    process.start()
    port = ours.recv()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for streams in args.streams:
            found = runner.run(measure(port, streams, args.events, args.rounds))
            print(json.dumps(found), flush=True)
    process.terminate()
    process.join()


if __name__ == "__main__":
    main()
