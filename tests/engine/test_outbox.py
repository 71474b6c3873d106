"""What leaves the engine process: at once where it can, in order always, without ever blocking."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import msgspec
import pytest

from pegainfer_core.contract import EngineMetrics, StepFrame, Tokens
from pegainfer_core.engine.outbox import Outbox
from pegainfer_core.engine.wire import Channel, FromWorker, Report

NUM_FRAMES = 3000
ROWS = 40


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def frame(number: int, rows: int = 1) -> StepFrame:
    return StepFrame([Tokens(row, [number]) for row in range(rows)])


def test_a_frame_leaves_on_the_callers_thread(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = ends
    monkeypatch.setattr(Outbox, "_flush", lambda self: None)  # The writer has no part in it.
    outbox = Outbox(Channel(ours), EngineMetrics)
    outbox.put(frame(7))
    messages = Channel(theirs).receive(msgspec.msgpack.Decoder(FromWorker))
    assert isinstance(next(messages), Report) and next(messages) == frame(7)
    outbox.close()


@pytest.mark.parametrize("pause_s", [0.0, 0.05])
def test_a_reader_that_is_slow_gets_all_in_order(
    ends: tuple[socket.socket, socket.socket], pause_s: float
) -> None:
    ours, theirs = ends
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    outbox = Outbox(Channel(ours), EngineMetrics)
    # Nobody reads before all is put: one that blocked would never return.
    for number in range(NUM_FRAMES):
        outbox.put(frame(number, ROWS))
    seen: dict[int, list[int]] = {row: [] for row in range(ROWS)}

    def read() -> None:
        time.sleep(pause_s)
        for message in Channel(theirs).receive(msgspec.msgpack.Decoder(FromWorker)):
            if isinstance(message, StepFrame):
                for event in message.events:
                    assert isinstance(event, Tokens)
                    seen[event.request_id] += event.token_ids

    reader = threading.Thread(target=read)
    reader.start()
    outbox.close()
    ours.close()
    reader.join(20)
    assert not reader.is_alive()
    assert all(ids == list(range(NUM_FRAMES)) for ids in seen.values())


def test_the_rest_of_a_frame_goes_out_before_the_end(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last frame is cut between the writer's flush and its look at whether to end."""
    ours, theirs = ends
    flush = Outbox._flush
    sent_at_once: list[Outbox] = []

    def flush_then_cut(self: Outbox) -> None:
        flush(self)
        if self._closing and not sent_at_once:
            sent_at_once.append(self)
            monkeypatch.setattr(Channel, "send_at_once", lambda channel, data: 0)
            self.put(frame(7))

    monkeypatch.setattr(Outbox, "_flush", flush_then_cut)
    outbox = Outbox(Channel(ours), EngineMetrics)
    outbox.close()
    ours.close()
    messages = list(Channel(theirs).receive(msgspec.msgpack.Decoder(FromWorker)))
    assert frame(7) in messages
