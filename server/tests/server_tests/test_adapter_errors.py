"""What an engine's fault while it changes adapters means over HTTP."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pegainfer_server.routes.adapters import _as_api_error

from pegainfer_core.contract import EngineError, HealthState


@pytest.mark.parametrize(
    ("state", "status", "code"),
    [(HealthState.READY, 500, "internal_error"), (HealthState.DEAD, 503, "dead")],
)
def test_only_a_dead_engine_is_called_dead(state: HealthState, status: int, code: str) -> None:
    client = SimpleNamespace(health=lambda: SimpleNamespace(state=state))
    error = _as_api_error(EngineError("no memory"), "lora_path", client)  # type: ignore[arg-type]
    assert (error.status, error.detail.code) == (status, code)
    assert "no memory" in error.detail.message
