"""A server on a thread, over real TCP, with a scripted engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import uvicorn
import uvloop
from pegainfer_server.app import create_app
from pegainfer_server.connection import Connection
from pegainfer_server.listener import bind
from pegainfer_server.parsing import ChatParsers
from pegainfer_server.served_model import ServedModel
from pegainfer_server.settings import ServerSettings
from pegainfer_server.state import ServerState

from pegainfer_core.engine import EngineClient
from pegainfer_core.plugin import RequestRecord
from pegainfer_core.testing.byte_tokenizer import byte_tokenizer
from pegainfer_core.text import ModelText

from .scripted_engine import Script, scripted_engine

if TYPE_CHECKING:
    from pegainfer_server.tracing import Tracing

CHAT_TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}>{% endif %}"
)


class Server:
    """What tests talk to.

    Attributes:
        url: Base URL.
        address: Host and port for raw sockets.
        script: What the engine does.
        client: For anything the methods do not cover.
        state: The server's, for looking only.
        records: Every `request_finished` record.
    """

    def __init__(self, sock: socket.socket, script: Script) -> None:
        self.address = sock.getsockname()[:2]
        self.url = f"http://127.0.0.1:{self.address[1]}"
        self.script = script
        self.records: list[RequestRecord] = []
        self.client = httpx.Client(base_url=self.url, timeout=20)
        self.state: ServerState

    def post(self, path: str, body: object, **kwargs: Any) -> httpx.Response:
        return self.client.post(path, json=body, **kwargs)

    def post_raw(self, path: str, body: str | bytes, kind: str | None) -> httpx.Response:
        headers = {} if kind is None else {"content-type": kind}
        return self.client.post(path, content=body, headers=headers)

    def get(self, path: str, **kwargs: Any) -> httpx.Response:
        return self.client.get(path, **kwargs)

    def complete(self, prompt: object, **fields: object) -> dict[str, Any]:
        response = self.post("/v1/completions", {"prompt": prompt, **fields})
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def events(self, path: str, **fields: object) -> list[dict[str, Any]]:
        """The decoded events of a stream, checked to end in [DONE]."""
        response = self.post(path, {**fields, "stream": True})
        assert response.status_code == 200, response.text
        return decode_events(response.content)

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Wait until a condition holds."""
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline_s, "the condition did not come true"
            time.sleep(0.005)

    def metric(self, name: str, **labels: str) -> float:
        """One sample of /metrics; 0 when it is absent."""
        for line in self.get("/metrics").text.splitlines():
            sample, _, value = line.rpartition(" ")
            found, _, rest = sample.partition("{")
            if found == f"pegainfer:{name}" and all(
                f'{k}="{v}"' in rest for k, v in labels.items()
            ):
                return float(value)
        return 0.0


def decode_events(content: bytes) -> list[dict[str, Any]]:
    """Split a stream as hand-written clients do; comments are dropped."""
    assert content.endswith(b"data: [DONE]\n\n")
    blocks = content.removesuffix(b"data: [DONE]\n\n").split(b"\n\n")
    assert blocks.pop() == b""
    data = [block for block in blocks if not block.startswith(b":")]
    assert all(block.startswith(b"data: ") and b"\n" not in block for block in data)
    return [json.loads(block.removeprefix(b"data: ")) for block in data]


@contextlib.contextmanager
def serving(
    folder: Path,
    script: Script | None = None,
    *,
    max_model_len: int = 4096,
    chat_template: str = CHAT_TEMPLATE,
    prepend_bos: bool = False,
    change_text: Callable[[ModelText], ModelText] = lambda text: text,
    load: bool = True,
    parsers: ChatParsers | None = None,
    stall_timeout_s: float = 0.0,
    send_buffer_bytes: int | None = None,
    tracing: Tracing | None = None,
    **settings: Any,
) -> Iterator[Server]:
    """Serve until the block ends."""
    script = script or Script()
    byte_tokenizer(folder, chat_template=chat_template, prepend_bos=prepend_bos)
    text = change_text(ModelText.load(folder, {"eos_token_id": 256}))
    sock = bind("127.0.0.1", 0, stall_timeout_s=stall_timeout_s)
    if send_buffer_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    server = Server(sock, script)
    ready = threading.Event()
    resolved = ServerSettings(**{"model_names": ("m",), **settings})

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server.state = ServerState(resolved)
        server.state.on_record = server.records.append
        server.state.tracing = tracing
        app = create_app(server.state)
        config = uvicorn.Config(
            app,
            http=partial(Connection, server.state.metrics),
            ws="none",
            lifespan="off",
            proxy_headers=False,
            log_level="warning",
        )
        web = uvicorn.Server(config)
        keeper = asyncio.create_task(server.state.keeper.run())
        stop = asyncio.Event()
        stopping.append(lambda: loop.call_soon_threadsafe(stop.set))
        handle = scripted_engine(script, max_model_len=max_model_len)
        client = EngineClient(handle)
        if load:
            server.state.model = ServedModel(
                names=resolved.model_names,
                client=client,
                text=text,
                sampling_defaults=resolved.sampling_flags,
                parsers=parsers or ChatParsers(),
            )
        serve = asyncio.create_task(web.serve(sockets=[sock]))
        while not web.started:
            await asyncio.sleep(0.005)
        ready.set()
        await stop.wait()
        await client.close()
        web.should_exit = True
        web.force_exit = True
        await serve
        keeper.cancel()

    stopping: list[Callable[[], object]] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(main())
        except BaseException as error:
            failures.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(20)
    try:
        if failures:
            raise failures[0]
        yield server
    finally:
        server.client.close()
        if stopping:
            stopping[0]()
        thread.join(20)
        sock.close()
        assert not thread.is_alive()
