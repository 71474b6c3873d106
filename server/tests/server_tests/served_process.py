"""`pegainfer serve` as users start it, on the echo example, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil

from pegainfer_core.testing.byte_tokenizer import byte_tokenizer

from .raw_http import RawConnection


class ServeProcess:
    """A running command.

    Attributes:
        port: Where it listens.
        process: The server.
    """

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.output = ""

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.port)

    def connect(self) -> RawConnection:
        return RawConnection(self.address)

    def get(self, path: str) -> tuple[int, dict[str, object]]:
        """Status and JSON body; status 0 when nothing listens."""
        try:
            with self.connect() as connection:
                connection.send("GET", path)
                status, head = connection.read_head()
                return status, json.loads(connection.read_body(head))
        except OSError:
            return 0, {}

    def post(self, path: str, body: object) -> tuple[int, dict[str, object]]:
        with self.connect() as connection:
            connection.post(path, body)
            status, head = connection.read_head()
            return status, json.loads(connection.read_body(head))

    def wait_status(self, *statuses: int, timeout_s: float = 20) -> int:
        """Wait until /health answers one of these; 0 stands for nobody listening."""
        deadline_s = time.monotonic() + timeout_s
        while (status := self.get("/health")[0]) not in statuses:
            assert time.monotonic() < deadline_s, f"/health stays {status}"
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.02)
        return status

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def exit_code(self, timeout_s: float = 15) -> int:
        """Wait for the end."""
        self.output, _ = self.process.communicate(timeout=timeout_s)
        return self.process.returncode


def echo_model(folder: Path, context_tokens: int = 4096) -> Path:
    """A checkpoint folder that the echo family claims."""
    byte_tokenizer(folder, chat_template="{% for m in messages %}{{ m.content }}{% endfor %}")
    config = {
        "model_type": "echo",
        "vocab_size": 1024,
        "max_position_embeddings": context_tokens,
        "eos_token_id": 256,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def start(
    folder: Path, *flags: str, port: int | None = None, environ: Mapping[str, str] | None = None
) -> ServeProcess:
    port = port or free_port()
    command = [sys.executable, "-m", "pegainfer_core.cli.main", "serve", str(folder)]
    process = subprocess.Popen(
        [*command, "--port", str(port), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **(environ or {})},
    )
    return ServeProcess(process, port)


@contextlib.contextmanager
def running(
    folder: Path, *flags: str, environ: Mapping[str, str] | None = None
) -> Iterator[ServeProcess]:
    """A server that is ready; killed at the end if it still runs."""
    server = start(folder, *flags, environ=environ)
    try:
        server.wait_status(200)
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.communicate()


def wait_for(condition: Callable[[], bool], timeout_s: float = 10) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "the condition did not come true"
        time.sleep(0.02)
