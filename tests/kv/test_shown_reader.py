"""The reader of KV events that `docs/kv-cache.md` shows, on a feed that it partly missed."""

from __future__ import annotations

import threading
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any

import pytest
import zmq

from pegainfer_core.contract import CoreOptions
from pegainfer_core.kv import open_kv
from tests.docs.pages import ROOT, blocks
from tests.kv.test_manager import B, serve

if TYPE_CHECKING:
    from pathlib import Path


def test_the_shown_reader_hears_everything_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    monkeypatch.setattr(zmq.Context, "instance", lambda: context)
    shown: dict[str, Any] = {}
    exec(blocks(ROOT / "docs" / "kv-cache.md", "python")[0].text, shown)
    live, replay = f"ipc://{tmp_path}/live", f"ipc://{tmp_path}/replay"
    kv = open_kv(1000, B, CoreOptions(kv_events=live, kv_events_replay=replay))
    for start in range(5):
        serve(kv, [start] * B)
    heard: Queue[Any] = Queue()

    def read() -> None:
        try:
            for events in shown["follow"](live, replay):
                heard.put(events)
        except zmq.ContextTerminated:
            pass

    thread = threading.Thread(target=read)
    thread.start()
    batches: list[Any] = []
    start = 5
    while not batches and start < 200:
        serve(kv, [start] * B)
        start += 1
        try:
            batches.append(heard.get(timeout=0.05))
        except Empty:
            continue
    for _ in range(start):
        batches.append(heard.get(timeout=20))
    assert batches[0] == [{"type": "AllBlocksCleared"}]
    assert [event["token_ids"] for [event] in batches[1:]] == [[id_] * B for id_ in range(start)]
    kv.close()
    context.term()
    thread.join()
