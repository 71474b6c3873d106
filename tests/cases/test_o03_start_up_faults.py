"""O03: what keeps a server from starting is told at once, with the flag or number to change."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path

import pytest
from pegainfer_server.listener import bind

from pegainfer_core.cli.main import main
from pegainfer_core.plugin import CommandFault
from pegainfer_core.testing.tiny import edit_config, table_model, tiny_qwen3
from pegainfer_core.weights import ConfigError
from tests.cases.conftest import LoadLLM
from tests.cases.http_server import COMPLETIONS, PROBE
from tests.cases.serve_process import START_TIMEOUT_S, serve_process
from tests.cases.slow_plugin import SlowModel

AT_ONCE_S = 5.0


def test_a_port_in_use(tmp_path: Path) -> None:
    """Found before any weight is read, or the broken weights would be the fault."""
    folder = tiny_qwen3(tmp_path / "m", vocab=300)
    for path in folder.glob("*.safetensors"):
        path.write_bytes(b"broken")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        started_s = time.monotonic()
        with serve_process(folder, "--port", port, log=tmp_path / "log") as started:
            assert started.wait_exit(AT_ONCE_S) == 2
            assert time.monotonic() - started_s < AT_ONCE_S
            (line,) = started.output().splitlines()
    assert f"port {port} of 127.0.0.1 is in use" in line and "--port" in line


def test_a_port_that_another_server_has_just_taken() -> None:
    """It has accepted nobody yet; the second one must learn of it now, not after loading."""
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(CommandFault, match=f"port {port} of 127.0.0.1 is in use"):
            bind("127.0.0.1", port)


def test_the_port_is_kept_while_others_open_sockets(tmp_path: Path) -> None:
    """The engine's process opens two hundred ports while it loads."""
    model = SlowModel(tmp_path)
    with serve_process(model.folder, log=tmp_path / "log", env=model.env) as started:
        server = started.wait_listening()
        started.wait_for(lambda: len(started.children()) == 1)
        engine = started.engine
        started.wait_for(lambda: engine.num_fds() > 200)
        with pytest.raises(OSError, match="in use"):
            socket.create_server(server.address)
        assert server.get("/health").status_code == 503
        model.let_load()
        assert started.wait_ready().address == server.address
        started.terminate()
        assert started.wait_exit(20) == 0


def test_room_for_less_than_one_full_context(tmp_path: Path) -> None:
    """The context is lowered to what the pages hold, said at start, and the door keeps to it."""
    folder = table_model(tmp_path / "m", {}, max_position_embeddings=64)
    with serve_process(folder, "--num-kv-pages", "2", log=tmp_path / "log") as started:
        server = started.wait_ready()
        note = next(line for line in started.output().splitlines() if "context limited" in line)
        assert all(word in note for word in ("32 tokens", "64", "2 KV pages", "--num-kv-pages"))
        assert "context 32 tokens" in started.output()
        assert server.get("/v1/models").json()["data"][0]["max_model_len"] == 32
        with server.unharmed({**PROBE, "prompt": "A" * 20}):
            error = server.refused(COMPLETIONS, {"prompt": "A" * 20, "max_tokens": 13})
            assert error["code"] == "context_length_exceeded"
            assert "32" in error["message"]
            assert server.complete("A" * 20, max_tokens=12).num_tokens == 12


def test_weights_larger_than_the_memory(tmp_path: Path) -> None:
    """Told before any of them is read, with what is needed and what there is."""
    folder = table_model(tmp_path / "m", {})
    sizes = {"hidden_size": 16_384, "intermediate_size": 65_536, "num_hidden_layers": 400}
    edit_config(folder, lambda config: config.update(sizes))
    with serve_process(folder, "--load-format", "dummy", log=tmp_path / "log") as started:
        assert started.wait_exit(START_TIMEOUT_S) == 2, started.output()
        line = started.output().splitlines()[-1]
    assert "Traceback" not in started.output()
    numbers = re.search(r"weights need ([0-9.]+) GiB .* only ([0-9.]+) GiB are free", line)
    assert numbers is not None, line
    values = 400 * (3 * 16_384 * 65_536 + 4 * 16 * 16_384) + 2 * 1024 * 16_384
    assert float(numbers[1]) == pytest.approx(values * 4 / 2**30, rel=1e-3)
    assert 0 < float(numbers[2]) < float(numbers[1])
    assert "--model-path" in line


def test_kv_pages_larger_than_the_memory(tmp_path: Path, load: LoadLLM) -> None:
    with pytest.raises(ConfigError, match=r"1000000000 KV pages need 1907\.3 GiB.*--num-kv-pages"):
        load(table_model(tmp_path / "m", {}), num_kv_pages=1_000_000_000)


@pytest.mark.parametrize("limit", ["max_prefill_tokens", "max_num_seqs"])
def test_step_buffers_larger_than_the_memory(tmp_path: Path, load: LoadLLM, limit: str) -> None:
    with pytest.raises(ConfigError, match=r"buffer of .* GiB.*--max-prefill-tokens.*max-num-seqs"):
        load(table_model(tmp_path / "m", {}), **{limit: 10**12})


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--max-model-len 64 --num-kv-pages 2", ("--max-model-len", "4 KV pages", "32")),
        ("--num-kv-pages 0", ("--num-kv-pages 0", "at least 1")),
        ("--max-model-len 65", ("--max-model-len 65", "64")),
        (f"--num-kv-pages {10**20}", ("--num-kv-pages", "64 bits")),
        (f"--seed {10**20}", ("--seed", "64 bits")),
        ("--kv-offload host,disk --kv-offload-disk-gib 1e300", ("--kv-offload-disk-gib", "<=")),
    ],
)
def test_limits_that_cannot_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: str, words: tuple[str, ...]
) -> None:
    folder = table_model(tmp_path / "m", {}, max_position_embeddings=64)
    assert main(["serve", str(folder), *flags.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert all(word in line for word in words)
