"""`pegainfer serve` as a process of its own, and when it came how far."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pegainfer_core.plugin import CommandFault

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

_POLL_S: Final = 0.01
_STOP_S: Final = 30.0
_ANSWER_S: Final = 600.0


class ServerProcess:
    """A server that is starting.

    Args:
        words: Of the command line behind `pegainfer serve`.
        timeout_s: Until the start has failed.

    Attributes:
        started_s: `time.perf_counter` just before the process was made.
    """

    def __init__(self, words: Sequence[str], timeout_s: float) -> None:
        self._output = tempfile.TemporaryFile()
        command = [sys.executable, "-m", "pegainfer_core.cli.main", "serve", *words]
        self.started_s = time.perf_counter()
        self._deadline_s = self.started_s + timeout_s
        self._process = subprocess.Popen(
            command, stdout=self._output, stderr=subprocess.STDOUT, start_new_session=True
        )
        self._host, self._port = "", 0

    @property
    def session(self) -> int:
        """Id of the session that its processes share."""
        return self._process.pid

    @property
    def url(self) -> str:
        """Where it listens, after `wait_listening`."""
        return f"http://{self._host}:{self._port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def wait_listening(self) -> float:
        """Seconds until it said where it listens: interpreter, imports, plan, socket.

        Raises:
            CommandFault: It ended, or took too long.
        """
        while True:
            match = re.search(rb" on (http://[^,\s]+),", self._printed())
            if match is not None:
                now_s = time.perf_counter()
                parts = urlsplit(match[1].decode())
                self._host, self._port = str(parts.hostname), int(parts.port or 80)
                return now_s - self.started_s
            self._check()

    def wait_ready(self) -> float:
        """Seconds until `/health` answered 200; call `wait_listening` before.

        Raises:
            CommandFault: It ended, or took too long.
        """
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = self._connect()
                connection.request("GET", "/health")
                status = connection.getresponse().status
                connection.close()
                if status == 200:
                    return time.perf_counter() - self.started_s
            self._check()

    def first_token(self, token_ids: Sequence[int]) -> float:
        """Seconds from sending a prompt to its first token.

        Raises:
            CommandFault: The server refused it or gave no token.
        """
        body = {"prompt": list(token_ids), "max_tokens": 4, "temperature": 0, "stream": True}
        connection = self._connect()
        began_s = time.perf_counter()
        connection.request(
            "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        if answer.status != 200:
            raise CommandFault(f"the first request failed: {answer.read(500).decode()}")
        try:
            for line in answer:
                if line.startswith(b"data: {"):
                    took_s = time.perf_counter() - began_s
                    answer.read()
                    return took_s
        finally:
            connection.close()
        raise CommandFault("the first request's answer held no token")

    def stop(self) -> None:
        """End it, and whatever of its session does not end by itself."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._output.close()

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._host, self._port, timeout=_ANSWER_S)

    def _printed(self) -> bytes:
        return os.pread(self._output.fileno(), 1 << 20, 0)

    def _check(self) -> None:
        """Wait a moment; fail if there is nothing left to wait for."""
        if self._process.poll() is not None:
            lines = self._printed().decode("utf-8", "replace").strip().splitlines() or ["nothing"]
            raise CommandFault(
                f"the server ended with status {self._process.returncode} before it was ready; "
                f"its last line: {lines[-1]}"
            )
        if time.perf_counter() > self._deadline_s:
            took_s = time.perf_counter() - self.started_s
            raise CommandFault(f"the server was not ready after {took_s:.0f} s (--start-timeout)")
        time.sleep(_POLL_S)
