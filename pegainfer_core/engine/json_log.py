"""Log lines as JSON objects, the same in the server's process and in the engine's."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import msgspec

_FIELDS = "fields"


class JsonLogFormatter(logging.Formatter):
    """One object a line: time (UTC), level, logger, message; `exception` holds a traceback.

    A record with `extra={"fields": {...}}` adds these fields, such as `request_id`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Encode a record."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= getattr(record, _FIELDS, {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # A value that JSON does not know must not cost the line.
        return msgspec.json.encode(line, enc_hook=str).decode()
