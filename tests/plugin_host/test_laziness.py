"""Discovery, probing, planning and the light commands import nothing heavy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = "cupy triton torch numpy tokenizers litestar uvicorn jinja2 transformers".split()

#: Makes an import of a heavy module fail at the line that asks for it.
BLOCK = f"import sys\nfor name in {HEAVY!r}:\n    sys.modules[name] = None\n"

SCRIPTS = {
    "contract": "import pegainfer_core, pegainfer_core.contract",
    "plugin": "from pegainfer_core.plugin import *",
    "discovery": """
from pegainfer_core.plugin import PluginHost
host = PluginHost.load()
assert host.warnings == [], host.warnings
assert "qwen3" in host.families
""",
    "probe": """
from pathlib import Path
from pegainfer_core.plugin import PluginHost, decide
host = PluginHost.load()
for config in ({"model_type": "qwen3"}, {"model_type": "?"}):
    for verdict in decide(host, config, Path(MODEL)).verdicts:
        assert "raised" not in verdict.reason, verdict
""",
    "plan": """
from pegainfer_core.plugin import PluginHost, prepare_launch
assert prepare_launch(PluginHost.load(), MODEL).plan.vocab_size == 1024
""",
}

CONFIG = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 1024,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def run(code: str) -> subprocess.CompletedProcess[str]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PEGAINFER_")}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environ,
    )


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_light_parts_need_no_heavy_module(name: str, model: Path) -> None:
    done = run(f"{BLOCK}MODEL = {str(model)!r}\n{SCRIPTS[name]}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command",
    [["--version"], ["--help"], ["plugins"], ["plugins", "--json"], ["probe"], ["serve", "--help"]],
)
def test_the_light_commands_need_no_heavy_module(command: list[str], model: Path) -> None:
    argv = [*command, str(model)] if command == ["probe"] else command
    code = f"{BLOCK}from pegainfer_core.cli.main import main\nsys.exit(main({argv!r}))"
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert "raised" not in done.stdout + done.stderr


def test_the_block_itself_works() -> None:
    assert run(f"{BLOCK}import numpy").returncode != 0
