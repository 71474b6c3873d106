"""The way to a model on a backend, and who closes it when the way ends early."""

from __future__ import annotations

from pathlib import Path

import pytest
from pegainfer_qwen3.config import plan_qwen3

from pegainfer_core.backend import Backend, NumpyBackend
from pegainfer_core.contract import CoreOptions, LaunchContext
from pegainfer_core.engine import BuiltEngine, launch_local, open_parameters
from pegainfer_core.testing import tiny_qwen3
from pegainfer_core.weights import ConfigError, TensorSpec, unread_names

SPECS = {"model.norm.weight": TensorSpec((64,), "norm")}


@pytest.fixture
def context(tmp_path: Path) -> LaunchContext:
    folder = tiny_qwen3(tmp_path / "m", hidden=64)
    options = CoreOptions(backend="numpy")
    return LaunchContext(
        model_dir=str(folder), family="qwen3", entry_point="pegainfer_qwen3.plugin", options=options
    )


def test_a_build_that_fails_closes_its_backend(
    context: LaunchContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Backend] = []
    monkeypatch.setattr(NumpyBackend, "close", lambda backend: closed.append(backend))
    seen: list[Backend] = []

    def build(backend: Backend) -> BuiltEngine:
        seen.append(backend)
        raise ConfigError("not this")

    with pytest.raises(ConfigError, match="not this"):
        launch_local(context, plan_qwen3(context), build)
    assert len(seen) == 1 and closed == seen


def test_what_was_asked_for_must_be_read(context: LaunchContext) -> None:
    backend = NumpyBackend()
    unread = (r"(?!model\.norm)",)
    with open_parameters(context, backend, SPECS, None, unread) as (loader, dtype):
        tensor = backend.load(loader, ["model.norm.weight"], dtype)
    assert tensor.shape == (64,)
    with (
        pytest.raises(RuntimeError, match=r"never read: tensor model\.norm\.weight"),
        open_parameters(context, backend, SPECS, None, unread),
    ):
        pass
    with (
        pytest.raises(ConfigError, match=r"model\.layers\.0"),
        open_parameters(context, backend, SPECS, None, unread_names(tied=False)),
    ):
        pass
