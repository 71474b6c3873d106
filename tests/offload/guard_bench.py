"""Sealed records for tests of the guard, by number, and short ways to ask."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

from pegainfer_core.kv import PageKey, TierRecord
from pegainfer_core.offload import GuardPolicy, RecordLayout, TierCall

from .scripted_tier import ScriptedTier

LAYOUT = RecordLayout(page_bytes=5000)
POLICY = GuardPolicy(call_deadline_s=20.0, max_failures=3, cool_down_s=60.0)
BRISK = GuardPolicy(call_deadline_s=20.0, max_failures=3, cool_down_s=0.02)
SHORT_S = 0.05
WAIT_S = 20.0


def key(number: int) -> PageKey:
    return PageKey(hashlib.sha256(bytes([number])).digest())


def blank(number: int) -> TierRecord:
    return TierRecord(key(number), memoryview(bytearray(LAYOUT.record_bytes)))


def sealed(number: int) -> TierRecord:
    record = blank(number)
    record.buffer[:5000] = bytes([number]) * 5000
    LAYOUT.seal(record.key, record.buffer)
    return record


def outcome(call: TierCall[list[bool]]) -> list[bool]:
    return call.outcome.result(WAIT_S)


def eventually(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def store(tier: ScriptedTier, *numbers: int) -> None:
    for number in numbers:
        tier.shelf[key(number)] = bytes(sealed(number).buffer)


def raises(error: BaseException) -> Callable[[Any], Any]:
    def call(_: Any) -> Any:
        raise error

    return call
