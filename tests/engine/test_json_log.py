"""Log lines as JSON: one object a line, whatever is in it."""

from __future__ import annotations

import json
import logging

from pegainfer_core.engine import JsonLogFormatter


def test_a_line_is_one_object() -> None:
    record = logging.LogRecord("a.b", logging.ERROR, __file__, 1, 'x "%s"\ny', ("z",), None)
    record.created = 1_700_000_000.25
    record.fields = {"request_id": "r", "odd": ValueError("v")}
    try:
        raise ZeroDivisionError
    except ZeroDivisionError as error:
        record.exc_info = (type(error), error, error.__traceback__)
    line = JsonLogFormatter().format(record)
    assert "\n" not in line
    entry = json.loads(line)
    assert entry.pop("exception").endswith("ZeroDivisionError")
    assert entry == {
        "time": "2023-11-14T22:13:20.250+00:00",
        "level": "error",
        "logger": "a.b",
        "message": 'x "z"\ny',
        "request_id": "r",
        "odd": "v",
    }
