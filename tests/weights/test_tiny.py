"""The tiny checkpoints: reproducible, loadable, and sensitive enough to test with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pegainfer_core.testing.tiny import edit_config, row, script, table_model, tiny_qwen3
from pegainfer_core.weights import (
    Checkpoint,
    ConfigError,
    FloatType,
    checkpoint_dtype,
    eos_token_ids,
    load_config,
    rope_config,
)
from tests.hf.golden import weights_digest
from tests.hf.reference_qwen3 import ReferenceQwen3


def test_folder_is_a_whole_checkpoint(tmp_path: Path) -> None:
    tiny_qwen3(tmp_path, eos_token_ids=(256, 257), chat_template="{{ messages }}")
    assert {path.name for path in tmp_path.iterdir()} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert eos_token_ids(load_config(tmp_path)) == (256, 257)
    with Checkpoint(tmp_path) as checkpoint:
        checkpoint.expect("model.layers.1.self_attn.q_proj.weight", (4 * 32, 128))
        checkpoint.expect("model.layers.1.self_attn.k_proj.weight", (2 * 32, 128))
        checkpoint.expect("model.layers.1.self_attn.o_proj.weight", (128, 4 * 32))
        checkpoint.expect("lm_head.weight", (1000, 128))
        assert len(checkpoint.names()) == 2 * 11 + 3
    with pytest.raises(ConfigError, match="already there"):
        tiny_qwen3(tmp_path)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_both_spellings_say_the_same(tmp_path: Path, dtype: FloatType) -> None:
    for old in (False, True):
        folder = tiny_qwen3(
            tmp_path / str(old), old_style_config=old, dtype=dtype, rope="yarn", layers=1
        )
        config = load_config(folder)
        assert ("rope_parameters" in config, "torch_dtype" in config) == (not old, old)
        assert checkpoint_dtype(config) == dtype
        with Checkpoint(folder) as checkpoint:
            assert {checkpoint.dtype(name) for name in checkpoint.names()} == {dtype}
    new, old_config = (load_config(tmp_path / name) for name in ("False", "True"))
    assert rope_config(new, 32) == rope_config(old_config, 32)


def test_values_depend_on_seed_and_name_only(tmp_path: Path) -> None:
    first = tiny_qwen3(tmp_path / "1", layers=1)
    sharded = tiny_qwen3(tmp_path / "2", layers=1, shards=2, rope="yarn")
    other = tiny_qwen3(tmp_path / "3", layers=1, seed=1)
    deeper = tiny_qwen3(tmp_path / "4", layers=2, tied=True)
    assert weights_digest(first) == weights_digest(sharded) != weights_digest(other)
    name = "model.layers.0.mlp.up_proj.weight"
    with Checkpoint(first) as a, Checkpoint(deeper) as b:
        np.testing.assert_array_equal(a.read_f32(name), b.read_f32(name))
        assert "lm_head.weight" not in b


def test_any_prompt_token_moves_the_last_logits(tmp_path: Path) -> None:
    """Tests of caches and batches are blind if it does not: a far token must count too."""
    model = ReferenceQwen3(tiny_qwen3(tmp_path))
    prompt = np.random.default_rng(0).integers(0, 1000, 48)
    last = model.logits(prompt)[-1]
    for position in (0, 1, 15, 16, 17, 31, 32, 46, 47):
        changed = prompt.copy()
        changed[position] = (changed[position] + 1) % 1000
        assert np.abs(model.logits(changed)[-1] - last).max() > 0.01


def test_table_model_gives_the_table(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = {token: dict(enumerate(rng.normal(size=1024) * 20)) for token in (0, 64, 1023)}
    model = ReferenceQwen3(table_model(tmp_path, table))
    logits = model.logits([64, 0, 7, 1023, 64])
    for position, token in ((0, 64), (1, 0), (3, 1023), (4, 64)):
        np.testing.assert_allclose(logits[position], [*table[token].values()], rtol=0, atol=2e-5)
    assert not logits[2].any()


def test_table_model_options(tmp_path: Path) -> None:
    plain = table_model(tmp_path / "plain", {})
    assert not (plain / "generation_config.json").exists()
    assert load_config(plain)["max_position_embeddings"] == 4096
    other = table_model(
        tmp_path / "other",
        {},
        max_position_embeddings=64,
        eos_token_ids=(256, 257),
        generation_config={"eos_token_id": [257]},
        chat_template="x",
    )
    config = load_config(other)
    assert (config["max_position_embeddings"], config["eos_token_id"]) == (64, [256, 257])
    assert json.loads((other / "generation_config.json").read_text()) == {"eos_token_id": [257]}
    assert json.loads((other / "tokenizer_config.json").read_text())["chat_template"] == "x"


def test_scripts() -> None:
    assert script("@", ["A", 260, "Z", 256]) == {
        64: {65: 40.0}, 65: {260: 40.0}, 260: {90: 40.0}, 90: {256: 40.0},
    }  # fmt: skip
    assert script("n", ["é", 256]) == script("n", [0xC3, 0xA9, 256])
    assert script("A", ["A"]) == script("A", ["A", "A", "A"]) == {65: {65: 40.0}}
    with pytest.raises(ValueError, match="token 65 is used twice"):
        script("@", ["A", "B", "A", "C"])


def test_rows() -> None:
    full = row({"A": -0.5, 300: 2}, others=-5)
    assert len(full) == 1024
    assert (full[65], full[300], full[66]) == (-0.5, 2, -5)
    with pytest.raises(ValueError, match="'é' is 2 tokens"):
        row({"é": 1.0})


def test_edit_config(tmp_path: Path) -> None:
    tiny_qwen3(tmp_path, layers=1)
    edit_config(tmp_path, lambda config: config.pop("head_dim"))
    assert "head_dim" not in load_config(tmp_path)
