"""`pegainfer serve` with bad input: one clear line, exit code 2, no traceback; C06 and O03a."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pegainfer_core.cli.main import main
from pegainfer_core.testing.tiny import edit_config, tiny_qwen3

from ..plugin_host.plugin_site import PluginSite
from .conftest import Run

START_TIMEOUT_S = 60.0


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A sound checkpoint of two shards."""
    return tiny_qwen3(tmp_path / "model", hidden=32, intermediate=64, vocab=300, shards=2)


def serve(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "pegainfer"), "serve", *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False
    )


def fault_of(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that a failed start ends with."""
    assert done.returncode == 2, done.stdout + done.stderr
    return fault_in(done.stderr)


def fault_in(output: str) -> str:
    assert "Traceback" not in output
    (line,) = [line for line in output.splitlines() if "error:" in line]
    assert line.startswith("pegainfer: error: ")
    return line


def last_shard(model: Path) -> Path:
    return sorted(model.glob("*.safetensors"))[-1]


def cut_last_shard(model: Path) -> None:
    path = last_shard(model)
    path.write_bytes(path.read_bytes()[:-1000])


def garble_header(model: Path) -> None:
    path = last_shard(model)
    raw = path.read_bytes()
    path.write_bytes(raw[:8] + b"?" * 40 + raw[48:])


def set_config(**values: object) -> Callable[[Path], None]:
    return lambda model: edit_config(model, lambda config: config.update(values))


FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}

Case = tuple[Callable[[Path], object], str, tuple[str, ...]]
"""What is done to a sound checkpoint, further flags, and what the line must name."""


def nothing(model: Path) -> None:
    """Leave the checkpoint sound."""


#: Found before anything starts.
EARLY: dict[str, Case] = {
    "no config": (lambda model: (model / "config.json").unlink(), "", ("config.json",)),
    "broken config": (
        lambda model: (model / "config.json").write_text("{"),
        "",
        ("config.json", "JSON"),
    ),
    "missing size": (
        lambda model: edit_config(model, lambda config: config.pop("hidden_size")),
        "",
        ("hidden_size",),
    ),
    "fp8": (set_config(quantization_config=FP8), "", ("'fp8'", "supported")),
    "unknown method": (set_config(quantization_config={"quant_method": "zzz"}), "", ("'zzz'",)),
    "fp8 in text_config": (set_config(text_config={"quantization_config": FP8}), "", ("'fp8'",)),
    "fp8 with --family": (
        set_config(quantization_config=FP8),
        "--family qwen3",
        ("'fp8'", "supported"),
    ),
    "too long context": (
        nothing,
        "--max-model-len 999999999",
        ("--max-model-len 999999999", "4096"),
    ),
    "no context": (nothing, "--max-model-len 0", ("--max-model-len 0",)),
    "no number": (nothing, "--max-model-len x", ("--max-model-len x",)),
    "unknown flag": (nothing, "--max-model-length 8", ("--max-model-length", "--max-model-len?")),
    "unused flag": (nothing, "--tp 2", ("--tp", "qwen3")),
    "no GPU": (nothing, "--backend cuda", ("--backend cuda",)),
    "unknown family": (nothing, "--family qwen4", ("--family qwen4", "qwen3")),
    "port out of range": (nothing, "--port 70000", ("--port 70000",)),
}

#: Found while the server starts, most of them in the engine's process.
LATE: dict[str, Case] = {
    "missing shard": (lambda model: last_shard(model).unlink(), "", ("-00002-of-00002.",)),
    "truncated shard": (cut_last_shard, "", ("-00002-of-00002.safetensors",)),
    "garbled shard": (garble_header, "", ("-00002-of-00002.safetensors",)),
    "wrong shape": (set_config(intermediate_size=96), "", ("mlp", "96", ".safetensors")),
    "missing tensor": (set_config(num_hidden_layers=3), "", ("model.layers.2",)),
    "no weights": (
        lambda model: [path.unlink() for path in model.glob("*.safetensors*")],
        "",
        ("safetensors",),
    ),
    "no tokenizer": (lambda model: (model / "tokenizer.json").unlink(), "", ("tokenizer",)),
    "broken tokenizer": (
        lambda model: (model / "tokenizer.json").write_text("{"),
        "",
        ("tokenizer.json",),
    ),
}


@pytest.mark.parametrize("name", EARLY)
def test_faults_found_before_anything_starts(model: Path, run: Run, name: str) -> None:
    spoil, flags, named = EARLY[name]
    spoil(model)
    done = run("serve", "--model-path", model, *flags.split(), plugins="qwen3,server")
    assert done.code == 2 and done.err.count("\n") == 1, done.err
    assert done.err.startswith("pegainfer: error: ")
    for text in named:
        assert text in done.err


#: Of these the whole command is started, with an engine in a process of its own.
WHOLE = ("truncated shard", "no tokenizer")


@pytest.mark.parametrize("name", LATE)
def test_faults_found_while_starting(
    model: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, flags, named = LATE[name]
    spoil(model)
    words = ("--model-path", str(model), "--port", "0", *flags.split())
    if name in WHOLE:
        line = fault_of(serve(*words))
    else:
        assert main(["serve", *words, "--in-process"]) == 2
        line = fault_in(capsys.readouterr().err)
    for text in named:
        assert text in line


def test_an_unknown_model_type(model: Path, run: Run) -> None:
    edit_config(model, lambda config: config.update(model_type="zzz"))
    done = run("serve", model, plugins="qwen3,kimik2,server")
    assert done.code == 2
    head, *details = done.err.splitlines()
    assert "model_type 'zzz'" in head and str(model / "config.json") in head
    assert len(details) == 3  # One line for each family, one for the plugins left out.


def test_an_unreadable_path(tmp_path: Path, run: Run) -> None:
    done = run("serve", tmp_path / "nowhere", plugins="qwen3,server")
    assert done.code == 2 and str(tmp_path / "nowhere") in done.err
    assert done.err.count("\n") == 1


def test_debug_shows_where_it_came_from(model: Path, run: Run) -> None:
    done = run("serve", model, "--max-model-len", "0", "--debug", plugins="qwen3,server")
    assert done.code == 2
    assert "Traceback" in done.err and "--max-model-len 0" in done.err.splitlines()[-1]


def test_a_port_in_use_is_told_before_any_weight_is_read(model: Path) -> None:
    cut_last_shard(model)  # Would be the fault if weights came first.
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        started_s = time.monotonic()
        line = fault_of(serve(model, "--port", str(port)))
        assert time.monotonic() - started_s < 20.0
    assert str(port) in line


def test_a_plugin_that_fails_does_not_keep_a_server_from_refusing_well(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case P01: the plugin that would have served the checkpoint is named with its failure."""
    folder = tmp_path / "site"
    folder.mkdir()
    PluginSite(folder).install("imp", "import a_module_that_is_not_there\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    (model / "config.json").write_text(json.dumps({"model_type": "new_arch"}))
    done = serve(model, "--port", "0")
    assert done.returncode == 2
    refusal = done.stderr.split("error: ", 1)[1]
    assert "model_type 'new_arch'" in refusal
    assert "plugin 'imp' (package dist-imp 1.0) failed" in refusal
