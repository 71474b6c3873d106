"""KV events as lines of JSON in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.kv.event_wire import EventEncoder
from pegainfer_core.weights import ConfigError

if TYPE_CHECKING:
    from pegainfer_core.kv.event_log import KvEvent


class JsonlSink:
    """Appends a line for every batch; implements `KvEventSink`."""

    def __init__(self, path: str) -> None:
        """Open the file.

        Raises:
            ConfigError: It cannot be written.
        """
        self._encoder = EventEncoder()
        self._torn = False
        try:
            # Unbuffered: a line is there for readers once it was sent.
            self._file = open(path, "ab", buffering=0)
        except OSError as error:
            raise ConfigError(
                f"--kv-events jsonl:{path} cannot be opened: {error.strerror}"
            ) from error

    def send(self, seq: int, ts: float, events: list[KvEvent]) -> None:
        """Append a line.

        Raises:
            OSError: It was not written whole; the next one starts on a line of its own.
        """
        line = self._encoder.line(seq, ts, events)
        if self._torn:
            line = b"\n" + line
        self._torn = True
        written = self._file.write(line)
        if written != len(line):
            raise OSError(f"{written} of {len(line)} bytes were written")
        self._torn = False

    def close(self) -> None:
        """Close the file."""
        self._file.close()
