"""Keys in every form, and what browsers of allowed pages may send."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from pegainfer_server.options import ServeOptions
from pegainfer_server.settings import ServerSettings

from pegainfer_core.plugin import CommandFault

from .served import serving

ORIGIN = "https://ui.example"


def test_keys_come_in_either_header(folder: Path) -> None:
    digests = tuple(hashlib.sha256(key).digest() for key in (b"one", b"two"))
    with serving(folder, key_digests=digests, cors_origins=frozenset({ORIGIN})) as server:

        def status(**headers: str) -> int:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return server.get("/v1/models", headers=named).status_code

        assert status(x_api_key="one") == status(x_api_key="two") == 200
        assert status(authorization="bearer two") == 200
        # Clients send placeholders in the header they do not use.
        assert status(x_api_key="two", authorization="Bearer none") == 200
        assert status(x_api_key="none", authorization="Bearer two") == 200
        for wrong in ({"x_api_key": "on"}, {"x_api_key": ""}, {"authorization": "one"}, {}):
            assert status(**wrong) == 401

        preflight = {"origin": ORIGIN, "access-control-request-method": "POST"}
        response = server.client.options("/v1/chat/completions", headers=preflight)
        assert response.status_code == 200
        allowed = response.headers["access-control-allow-headers"].split(", ")
        assert {"authorization", "x-api-key", "content-type", "x-stainless-lang"} <= set(allowed)
        # An error must be readable for the page, or its user sees nothing but a network fault.
        refused = server.get("/v1/models", headers={"origin": ORIGIN})
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == ORIGIN
        for method in ("GET", "POST", "OPTIONS"):
            foreign = server.client.request(
                method, "/v1/models", headers={"origin": "https://evil.example"}
            )
            assert foreign.status_code == 403
            assert "access-control-allow-origin" not in foreign.headers
            assert foreign.headers["vary"] == "Origin"


def test_keys_come_from_flags_file_and_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEGAINFER_API_KEY", "env\n")
    keys = tmp_path / "keys"
    keys.write_text("file\n")
    options = ServeOptions(api_key=["flag", "other", "file"], api_key_file=str(keys))
    digests = ServerSettings.resolve(options, "/m").key_digests
    expected = [hashlib.sha256(key).digest() for key in (b"flag", b"other", b"file", b"env")]
    assert list(digests) == expected


def test_an_empty_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PEGAINFER_API_KEY", raising=False)
    with pytest.raises(CommandFault, match="--api-key is empty"):
        ServerSettings.resolve(ServeOptions(api_key=["a", " "]), "/m")
    monkeypatch.setenv("PEGAINFER_API_KEY", "")
    assert ServerSettings.resolve(ServeOptions(), "/m").key_digests == ()
