"""One set of tests for both transports: the same engine in process and in a child process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pegainfer_echo.plugin import EchoFamily

from pegainfer_core.contract import CoreOptions, EngineHandle, LaunchContext
from pegainfer_core.engine import ProcessEngine

StartEcho = Callable[..., EngineHandle]
Option = str | int | float | bool | None


def echo_context(model_dir: Path, **family_options: Option) -> LaunchContext:
    config = {"model_type": "echo", "vocab_size": 1024, "max_position_embeddings": 100_000}
    (model_dir / "config.json").write_text(json.dumps(config))
    return LaunchContext(
        model_dir=str(model_dir),
        family="echo",
        entry_point="pegainfer_echo.plugin",
        options=CoreOptions(),
        family_options=family_options,
    )


@pytest.fixture(params=["in-process", "process"])
def start_echo(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartEcho]:
    """Start an echo engine on the transport under test; closed at the end."""
    started: list[EngineHandle] = []

    def start(**family_options: Option) -> EngineHandle:
        context = echo_context(tmp_path, **family_options)
        family = EchoFamily()
        plan = family.plan(context)
        handle: EngineHandle
        if request.param == "process":
            handle = ProcessEngine(context, plan)
        else:
            handle = family.launch(context, plan)
        started.append(handle)
        return handle

    yield start
    for handle in started:
        handle.close()
