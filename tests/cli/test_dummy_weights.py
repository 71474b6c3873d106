from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..plugin_host.plugin_site import PluginSite
from .conftest import Run

CONFIG = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "vocab_size": 96,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    return folder


def test_weights_go_beside_the_config(run: Run, site: PluginSite, model: Path) -> None:
    done = run("dummy-weights", str(model), plugins="qwen3")
    assert done.code == 0, done.err
    assert "bfloat16, seed 0" in done.out and "1 file," in done.out
    assert (model / "model.safetensors").stat().st_size > 2 * 96 * 32 * 2
    again = run("dummy-weights", str(model))
    assert again.code == 2 and "model.safetensors is already there" in again.err


def test_equal_seeds_give_equal_files_elsewhere(
    run: Run, site: PluginSite, model: Path, tmp_path: Path
) -> None:
    def written(name: str, *flags: str) -> dict[str, bytes]:
        out = tmp_path / name
        done = run("dummy-weights", str(model), "--out", str(out), *flags, plugins="qwen3")
        assert done.code == 0, done.err
        return {path.name: path.read_bytes() for path in out.iterdir()}

    one = written("one", "--seed", "7")
    assert set(one) == {"config.json", "tokenizer.json", "model.safetensors"}
    assert written("two", "--seed", "7") == one
    assert written("three", "--seed", "8") != one
    sharded = written("four", "--seed", "7", "--num-shards", "2")
    assert "model.safetensors.index.json" in sharded
    assert not list(model.glob("*.safetensors*"))


def test_faults(run: Run, site: PluginSite, model: Path, tmp_path: Path) -> None:
    site.install("plain", "@hookimpl\ndef model_families():\n    return [Family('plain', 'p')]\n")
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "config.json").write_text('{"model_type": "p"}')
    done = run("dummy-weights", str(tmp_path / "p"), plugins="plain,qwen3")
    assert done.code == 2 and "plain does not offer dummy weights" in done.err
    blocked = tmp_path / "a-file"
    blocked.write_text("")
    done = run("dummy-weights", str(model), "--out", str(blocked))
    assert done.code == 2 and "a-file" in done.err and done.err.count("\n") == 1
    (model / "config.json").write_text('{"model_type": "qwen3"}')
    done = run("dummy-weights", str(model))
    assert done.code == 2 and "config.json" in done.err and done.err.count("\n") == 1
