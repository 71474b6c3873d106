"""Where log lines go and what they look like, as people or collectors want to read them."""

from __future__ import annotations

import logging
import sys

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

logger = logging.getLogger("pegainfer_server")


class LogOutput:
    """The process's log on standard error, and what is said to whoever started the server."""

    def __init__(self, *, as_json: bool, access_log: bool) -> None:
        self._as_json = as_json
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_json_formatter() if as_json else logging.Formatter(_TEXT))
        logging.basicConfig(level=logging.INFO, handlers=[handler])
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        if not access_log:
            logging.getLogger("pegainfer_server.access").setLevel(logging.WARNING)

    def say(self, line: str) -> None:
        """Tell the starter: a line on standard output, in JSON one of the log."""
        if self._as_json:
            logger.info(line.strip())
        else:
            print(line, flush=True)


def _json_formatter() -> logging.Formatter:
    from pegainfer_core.engine import JsonLogFormatter

    return JsonLogFormatter()
