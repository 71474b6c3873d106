"""Routes of adapters where the engine takes none, and names that would hide the model."""

from __future__ import annotations

from pathlib import Path

import pytest
from pegainfer_server.settings import refuse_taken_names

from pegainfer_core.plugin import CommandFault

from .served import Server, serving

LOAD = {"lora_name": "x", "lora_path": "nowhere"}
ROUTES = {"/v1/load_lora_adapter": LOAD, "/v1/unload_lora_adapter": {"lora_name": "x"}}


def test_routes_exist_only_where_lora_is_on(server: Server) -> None:
    for path, body in ROUTES.items():
        response = server.post(path, body)
        assert response.status_code == 404
        assert response.json()["error"]["code"] == "unknown_path"
    assert "lora" not in server.get("/schema/openapi.json").text


def test_an_engine_without_adapters_says_so(folder: Path) -> None:
    with serving(folder, lora=True) as server:
        for path, body in ROUTES.items():
            response = server.post(path, body)
            assert response.status_code == 400
            assert "no LoRA adapters" in response.json()["error"]["message"]
        assert "/v1/load_lora_adapter" in server.get("/schema/openapi.json").json()["paths"]
        faults = (
            {"lora_path": "nowhere"},
            {**LOAD, "lora_name": 3},
            {**LOAD, "load_inplace": "yes"},
            [LOAD],
        )
        for fault in faults:
            assert server.post("/v1/load_lora_adapter", fault).status_code == 400


def test_an_adapter_may_not_have_the_models_name() -> None:
    refuse_taken_names(["x=a", "y=b"], ["m", "n"])
    with pytest.raises(CommandFault, match="--lora n=b: the model itself is served as 'n'"):
        refuse_taken_names(["x=a", "n=b"], ["m", "n"])
    with pytest.raises(CommandFault, match="--lora x=a: the model itself is served as 'm:x'"):
        refuse_taken_names(["x=a"], ["m", "m:x"])
