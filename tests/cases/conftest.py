"""Tiny real checkpoints, and engines over them that the plugin host chose."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pegainfer_qwen3.engine
import pytest
from pegainfer_qwen3.engine import LoadedModel

from pegainfer_core import LLM
from pegainfer_core.contract import CoreOptions
from pegainfer_core.engine import Admission, DecoderRunner
from pegainfer_core.plugin import HostSettings, PluginHost, prepare_launch
from pegainfer_core.testing.conformance.session import Session
from pegainfer_core.testing.tiny import tiny_qwen3
from tests.cases.http_server import HttpServer
from tests.cases.serving import serving
from tests.cases.step_gate import StepGate
from tests.hf import cases

if TYPE_CHECKING:
    from pegainfer_core.engine import LaunchedStep, StepPlan

#: The seeded tiny model F3: two layers, grouped queries, float32. Goldens exist under this name.
F3 = "theta_500k"
#: Renders messages as their bare contents, so that a chat's prompt is what the user says.
BARE_TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
TIMEOUT_S = 60.0

StartEngine = Callable[..., Session]
LoadLLM = Callable[..., LLM]
Serve = Callable[..., HttpServer]


@pytest.fixture(scope="session")
def qwen3_host() -> PluginHost:
    """The real plugin host, with the real Qwen3 plugin and no other."""
    return PluginHost.load(HostSettings(allowed=frozenset({"qwen3"}), strict=True))


@pytest.fixture(scope="session")
def f3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """F3 in float32."""
    return cases.build(F3, tmp_path_factory.mktemp("f3") / "model")


@pytest.fixture(scope="session")
def f3_bf16(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """F3 in bfloat16."""
    folder = tmp_path_factory.mktemp("f3_bf16") / "model"
    return tiny_qwen3(folder, **cases.CASES[F3], dtype="bfloat16")


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests start although those that run will need the pages: they preempt each other soon."""
    monkeypatch.setattr(Admission, "_soon_needed", lambda self, sequence: 0)


@pytest.fixture
def start(qwen3_host: PluginHost) -> Iterator[StartEngine]:
    """`start(folder, **options)`: an engine, spoken to through its contract; closed at the end."""
    sessions: list[Session] = []

    def start_engine(folder: Path, **options: object) -> Session:
        core = CoreOptions(**{"backend": "numpy", "max_num_seqs": 32, **options})
        launch = prepare_launch(qwen3_host, folder, options=core)
        handle = launch.family.launch(launch.context, launch.plan)
        sessions.append(Session(handle, TIMEOUT_S))
        return sessions[-1]

    yield start_engine
    for session in sessions:
        session.handle.close()


@pytest.fixture
def load(qwen3_host: PluginHost) -> Iterator[LoadLLM]:
    """`load(folder, **options)`: an `LLM`; closed at the end."""
    made: list[LLM] = []

    def load_llm(folder: str | Path, **options: object) -> LLM:
        made.append(LLM(folder, host=qwen3_host, backend="numpy", **options))
        return made[-1]

    yield load_llm
    for llm in made:
        llm.close()


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[LoadedModel]:
    """Every model that this test's engines load, in order."""
    found: list[LoadedModel] = []
    load_model = pegainfer_qwen3.engine.load_model

    def keep(*arguments: object) -> LoadedModel:
        found.append(load_model(*arguments))
        return found[-1]

    monkeypatch.setattr(pegainfer_qwen3.engine, "load_model", keep)
    return found


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[StepGate]:
    """Stands before every step of the engines of this test; open at first."""
    made = StepGate()
    launch = DecoderRunner.launch

    def gated(runner: DecoderRunner, plan: StepPlan) -> LaunchedStep:
        made.enter(plan)
        return launch(runner, plan)

    monkeypatch.setattr(DecoderRunner, "launch", gated)
    yield made
    made.open()


@pytest.fixture(scope="module")
def serve(qwen3_host: PluginHost) -> Iterator[Serve]:
    """`serve(folder, **options)`: a server, until the end of the module; see `serving`."""
    with contextlib.ExitStack() as stack:
        yield lambda folder, **options: stack.enter_context(serving(folder, qwen3_host, **options))


@pytest.fixture
def server(shared: HttpServer) -> Iterator[HttpServer]:
    """The module's server `shared`, which every test must leave as it was."""
    with shared.unharmed():
        yield shared
