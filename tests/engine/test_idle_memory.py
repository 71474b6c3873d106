"""When freed memory goes back to the system, and that it does."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pegainfer_echo.plugin import EchoFamily

from pegainfer_core.contract import GenerateRequest, SamplingParams
from pegainfer_core.engine import idle_memory
from pegainfer_core.engine.idle_memory import IDLE_S, IdleMemory
from tests.engine.conftest import echo_context

FREE_BETWEEN_KEPT = """
import re
from pathlib import Path
from pegainfer_core.engine.idle_memory import give_back_freed_memory

def resident_mb():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1000

blocks = [bytes(50_000) for _ in range(1000)]
kept = blocks[::100]
del blocks
before = resident_mb()
give_back_freed_memory()
print(before - resident_mb())
"""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Moments at which memory was given back."""
    moments: list[float] = []
    monkeypatch.setattr(
        idle_memory, "give_back_freed_memory", lambda: moments.append(time.monotonic())
    )
    yield moments


def test_memory_goes_back_once_in_every_idle_period(
    calls: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    memory = IdleMemory()
    memory.look(0)
    now_s += IDLE_S / 2
    memory.look(0)
    assert len(calls) == 0
    now_s += IDLE_S / 2
    memory.look(0)
    now_s += 10 * IDLE_S
    memory.look(0)
    assert len(calls) == 1
    memory.look(7)  # work was done since, however long ago
    assert len(calls) == 1
    now_s += IDLE_S
    memory.look(7)
    assert len(calls) == 2


def test_an_engine_gives_memory_back_when_it_idles(calls: list[float], tmp_path: Path) -> None:
    context = echo_context(tmp_path)
    family = EchoFamily()
    engine = family.launch(context, family.plan(context))
    try:
        engine.submit(
            GenerateRequest(request_id=1, prompt_token_ids=[5], params=SamplingParams(max_tokens=3))
        )
        submitted_s = time.monotonic()
        deadline_s = submitted_s + 30
        while not calls and time.monotonic() < deadline_s:
            time.sleep(0.05)
        time.sleep(0.5 * IDLE_S)
    finally:
        engine.close()
    assert len(calls) == 1
    assert calls[0] - submitted_s >= IDLE_S


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be asked to")
def test_freed_memory_between_kept_blocks_goes_back() -> None:
    command = [sys.executable, "-c", FREE_BETWEEN_KEPT]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(done.stdout) > 40
