"""What only a separate engine process can do: die, hang, outlive its server."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from pegainfer_echo.plugin import EchoFamily

from pegainfer_core.contract import (
    EngineError,
    Error,
    GenerateRequest,
    HealthState,
    SamplingParams,
    StepFrame,
)
from pegainfer_core.engine import EngineClient, ProcessEngine
from pegainfer_core.engine.outbox import Outbox
from pegainfer_core.engine.wire import Channel
from pegainfer_core.weights import ConfigError
from tests.engine.conftest import echo_context

LONG = SamplingParams(max_tokens=90_000)


def start(model_dir: Path, **options: float) -> ProcessEngine:
    context = echo_context(model_dir, **options)
    return ProcessEngine(context, EchoFamily().plan(context))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_dead_or_frozen_engine_fails_its_requests(tmp_path: Path, number: int) -> None:
    handle = start(tmp_path, echo_decode_ms=1.0)

    async def main() -> float:
        client = EngineClient(handle)
        stream = client.submit([1], LONG)
        await stream.next_events()
        os.kill(handle.info.pid, number)
        started = time.monotonic()
        events = [e async for e in stream]
        assert isinstance(events[-1], Error)
        assert client.health().state is HealthState.DEAD
        with pytest.raises(EngineError):
            client.submit([1], LONG)
        return time.monotonic() - started

    took_s = asyncio.run(main())
    handle.close()
    assert took_s < (5 if number == signal.SIGKILL else 9)
    assert not psutil.pid_exists(handle.info.pid)


def test_a_reader_that_fails_does_not_leave_the_engine_looking_alive(tmp_path: Path) -> None:
    handle = start(tmp_path, echo_decode_ms=1.0)
    ended = threading.Event()
    frames: list[StepFrame] = []

    def sink(frame: StepFrame) -> None:
        frames.append(frame)
        if len(frames) == 1:
            raise ValueError("a frame that nobody understands")
        ended.set()

    handle.connect(sink)
    handle.submit(GenerateRequest(request_id=1, prompt_token_ids=[1], params=LONG))
    assert ended.wait(20)
    (error,) = frames[-1].events
    assert isinstance(error, Error) and "a frame that nobody understands" in error.message
    assert handle.health().state is HealthState.DEAD
    handle.close()
    assert not psutil.pid_exists(handle.info.pid)


def test_a_writer_that_fails_ends_both_ends() -> None:
    ours, theirs = socket.socketpair()
    outbox = Outbox(Channel(ours), lambda: object())  # type: ignore[arg-type, return-value]
    theirs.settimeout(20)
    assert theirs.recv(1) == b""
    outbox.close()
    theirs.close()


def test_a_worker_that_cannot_start_says_why(tmp_path: Path) -> None:
    context = echo_context(tmp_path)
    plan = EchoFamily().plan(context)
    broken = context.__class__(
        model_dir=context.model_dir, family="ghost", entry_point="pegainfer_echo.plugin"
    )
    with pytest.raises(EngineError, match="offers no model family 'ghost'"):
        ProcessEngine(broken, plan)


def test_a_users_fault_crosses_the_process_as_such(tmp_path: Path) -> None:
    plugin = tmp_path / "faulty_plugin.py"
    plugin.write_text(
        "from pegainfer_core.weights import ConfigError\n"
        "class Family:\n"
        "    id = 'faulty'\n"
        "    def launch(self, context, plan):\n"
        "        raise ConfigError('shard model-00001 is missing')\n"
        "def model_families():\n"
        "    return [Family()]\n"
    )
    context = echo_context(tmp_path)
    plan = EchoFamily().plan(context)
    broken = context.__class__(
        model_dir=context.model_dir, family="faulty", entry_point="faulty_plugin"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        with pytest.raises(ConfigError, match="shard model-00001 is missing"):
            ProcessEngine(broken, plan)
    finally:
        sys.path.remove(str(tmp_path))


SLOW_PLUGIN = """
import os, time

class Family:
    id = "slow"

    def launch(self, context, plan):
        print(os.getpid(), flush=True)
        time.sleep(60)

def model_families():
    return [Family()]
"""


def serve_until_killed(model_dir: Path) -> None:
    """Body of a server process: print the engine's process id and wait."""
    print(start(model_dir).info.pid, flush=True)
    time.sleep(60)


def load_until_killed(model_dir: Path) -> None:
    """Body of a server process whose engine is still loading."""
    (model_dir / "slow_plugin.py").write_text(SLOW_PLUGIN)
    sys.path.insert(0, str(model_dir))
    context = echo_context(model_dir)
    slow = context.__class__(model_dir=context.model_dir, family="slow", entry_point="slow_plugin")
    ProcessEngine(slow, EchoFamily().plan(context))


@pytest.mark.parametrize("body", ["serve_until_killed", "load_until_killed"])
def test_no_engine_outlives_a_killed_server(tmp_path: Path, body: str) -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tests.engine import test_process\n"
        f"test_process.{body}(Path(sys.argv[1]))\n"
    )
    root = Path(__file__).parents[2]
    server = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=root
    )
    assert server.stdout is not None
    engine_pid = int(server.stdout.readline())
    assert psutil.pid_exists(engine_pid)
    server.kill()
    server.wait()
    server.stdout.close()
    deadline = time.monotonic() + 20
    while psutil.pid_exists(engine_pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(engine_pid)
