"""Flags, key files and defaults to settings."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from pegainfer_server.options import ServeOptions
from pegainfer_server.sampling import effective_defaults
from pegainfer_server.settings import ServerSettings

from pegainfer_core.plugin import CommandFault


def test_keys_come_from_file_and_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEGAINFER_API_KEY", "third")
    keys = tmp_path / "keys"
    keys.write_text("first\n\nsecond\n")
    settings = ServerSettings.resolve(ServeOptions(api_key_file=str(keys)), "/models/m")
    expected = [hashlib.sha256(key).digest() for key in (b"first", b"second", b"third")]
    assert list(settings.key_digests) == expected
    assert settings.model_names == ("m",)
    keys.write_text("\n")
    with pytest.raises(CommandFault, match="holds no key"):
        ServerSettings.resolve(ServeOptions(api_key_file=str(keys)), "/models/m")


@pytest.mark.parametrize("line", ["# key of Alice", "#alice", "two keys", "Bearer\tkey"])
def test_the_words_of_a_comment_are_no_keys(tmp_path: Path, line: str) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"first\n{line}\n")
    with pytest.raises(CommandFault, match="line 2 is no key") as caught:
        ServerSettings.resolve(ServeOptions(api_key_file=str(keys)), "/models/m")
    assert line not in str(caught.value)
    keys.write_text(" first \r\n\n second\n")
    settings = ServerSettings.resolve(ServeOptions(api_key_file=str(keys)), "/models/m")
    expected = [hashlib.sha256(key).digest() for key in (b"first", b"second")]
    assert list(settings.key_digests)[:2] == expected


def test_flags_come_before_the_checkpoints_defaults() -> None:
    options = ServeOptions(sampling_defaults='{"temperature": 0.1, "presence_penalty": 1}')
    flags = ServerSettings.resolve(options, "/m").sampling_flags
    assert flags == {"temperature": 0.1, "presence_penalty": 1.0}
    merged = effective_defaults({"temperature": 0.6, "top_k": 20, "max_new_tokens": 9}, flags)
    assert merged == {"temperature": 0.1, "top_k": 20, "presence_penalty": 1.0}


def test_discovery_of_the_server_imports_nothing_heavy() -> None:
    code = (
        "import sys; import pegainfer_server.plugin; "
        "heavy = {'litestar', 'uvicorn', 'uvloop', 'numpy', 'tokenizers'} & set(sys.modules); "
        "print(heavy); sys.exit(bool(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("*", "*"),
        ("null", "null"),
        ("https://UI.example/", "https://ui.example"),
        ("https://ui.example:443", "https://ui.example"),
        ("http://ui.example:80", "http://ui.example"),
        ("http://[::1]:443", "http://[::1]:443"),
        ("vscode-webview://1a2b", "vscode-webview://1a2b"),
    ],
)
def test_origins_are_those_that_browsers_send(given: str, sent: str) -> None:
    settings = ServerSettings.resolve(ServeOptions(cors_origin=[given]), "/m")
    assert settings.cors_origins == {sent}


@pytest.mark.parametrize(
    "given", ["", "ui.example", "https://", "https://ui.example/app", "//a", "https://u@a", "a b"]
)
def test_origins_that_no_page_has(given: str) -> None:
    with pytest.raises(CommandFault, match=r"--cors-origin .*no page has this origin"):
        ServerSettings.resolve(ServeOptions(cors_origin=[given]), "/m")


@pytest.mark.parametrize("given", ["llm.example", "LLM", "192.0.2.7", "fd00::7", "a_b"])
def test_hosts(given: str) -> None:
    settings = ServerSettings.resolve(ServeOptions(allowed_host=[given]), "/m")
    assert settings.allowed_hosts == {given.lower()}


@pytest.mark.parametrize("given", ["", "http://a", "a:8000", "a/b", "[::1]", "a b", "a."])
def test_hosts_that_no_request_has(given: str) -> None:
    with pytest.raises(CommandFault, match=r"--allowed-host .*no request has this host"):
        ServerSettings.resolve(ServeOptions(allowed_host=[given]), "/m")
