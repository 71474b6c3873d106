"""config.json: every spelling means the same, and every fault is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pegainfer_qwen3.config import parse_config
from pegainfer_qwen3.weights import tensor_specs

from pegainfer_core.testing.tiny import edit_config, tiny_qwen3
from pegainfer_core.weights import Checkpoint, ConfigError
from plugins.pegainfer_qwen3.tests.stepper import Stepper

if TYPE_CHECKING:
    from collections.abc import Callable

#: Sizes of the released Qwen3-0.6B.
QWEN3_06B: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "max_window_layers": 28,
    "model_type": "qwen3",
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
    "vocab_size": 151936,
}


def changed(**changes: object) -> dict[str, Any]:
    config = QWEN3_06B | changes
    return {key: value for key, value in config.items() if value is not ...}


def test_released_config() -> None:
    config = parse_config(QWEN3_06B)
    assert config.dtype == "bfloat16"
    assert config.tied
    assert config.rope.theta == 1e6
    assert config.context_tokens == 40960
    # What one decode step multiplies with, besides the head.
    assert config.layer_matrix_values == 28 * 15_728_640


@pytest.mark.parametrize(
    "missing",
    [
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "max_position_embeddings",
    ],
)
def test_a_missing_size_is_named(missing: str) -> None:
    with pytest.raises(ConfigError, match=f"{missing} is missing"):
        parse_config(changed(**{missing: ...}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": "1024"}, "hidden_size is '1024'"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_key_value_heads": 5}, "num_attention_heads 16 is not a multiple of .* 5"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"attention_bias": True}, "attention_bias is true"),
        ({"use_sliding_window": True}, "use_sliding_window is true"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ({"rms_norm_eps": "tiny"}, "rms_norm_eps is 'tiny'"),
        ({"partial_rotary_factor": 0.5}, "turns 64 of 128 channels"),
        ({"rope_scaling": {"rope_type": "zzz"}}, "rope_type is 'zzz'"),
        ({"torch_dtype": "int8"}, "torch_dtype is 'int8'"),
        ({"head_dim": 33}, "33"),
    ],
)
def test_a_fault_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config(changed(**changes))


def test_c04_head_dim_comes_from_the_config() -> None:
    sizes = {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
    }
    shapes = tensor_specs(changed(**sizes, head_dim=32))
    prefix = "model.layers.1.self_attn."
    assert shapes[f"{prefix}q_proj.weight"].shape == (128, 64)
    assert shapes[f"{prefix}k_proj.weight"].shape == (64, 64)
    assert shapes[f"{prefix}v_proj.weight"].shape == (64, 64)
    assert shapes[f"{prefix}o_proj.weight"].shape == (64, 128)
    for absent in (None, ...):
        config = changed(**sizes, head_dim=absent)
        assert parse_config(config).head_dim == 16
        assert tensor_specs(config)[f"{prefix}q_proj.weight"].shape == (64, 64)


def test_as_many_kv_heads_as_heads_when_not_said() -> None:
    for absent in (None, ...):
        assert parse_config(changed(num_key_value_heads=absent)).num_kv_heads == 16


def _reference(config: dict[str, Any]) -> None:
    config["rope_theta"] = 500_000


def _parameters(config: dict[str, Any]) -> None:
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": 500_000}


def _null_scaling(config: dict[str, Any]) -> None:
    config |= {"rope_theta": 500_000, "rope_scaling": None}


def _scaling(config: dict[str, Any]) -> None:
    config["rope_scaling"] = {"rope_type": "default", "rope_theta": 500_000}


def _nested(config: dict[str, Any]) -> None:
    config["text_config"] = {
        "rope_parameters": {"rope_type": "default", "rope_theta": 500_000},
        "max_position_embeddings": config.pop("max_position_embeddings"),
    }


def _inner_wins(config: dict[str, Any]) -> None:
    config |= {"rope_theta": 77, "rope_parameters": {"rope_theta": 500_000}}


def _control(config: dict[str, Any]) -> None:
    config["rope_theta"] = 10_000


def _logits(path: Path, respell: Callable[[dict[str, Any]], None]) -> np.ndarray:
    model_dir = tiny_qwen3(path, seed=12)

    def edit(config: dict[str, Any]) -> None:
        del config["rope_parameters"]
        respell(config)

    edit_config(model_dir, edit)
    return Stepper(model_dir).logits(np.arange(100) * 7 % 900 + 5)


def test_c03_theta_reaches_the_tables_from_every_spelling(tmp_path: Path) -> None:
    expected = _logits(tmp_path / "reference", _reference)
    for respell in (_parameters, _null_scaling, _scaling, _nested, _inner_wins):
        actual = _logits(tmp_path / respell.__name__, respell)
        np.testing.assert_array_equal(actual, expected, err_msg=respell.__name__)
    control = _logits(tmp_path / "control", _control)
    assert (np.abs(control - expected)[32:].max(axis=1) > 0.01).all()


def test_c03_yarn_by_type_and_by_rope_type(tmp_path: Path) -> None:
    settings = {"factor": 4.0, "original_max_position_embeddings": 1024}
    answers = []
    for key in ("type", "rope_type"):

        def respell(config: dict[str, Any], key: str = key) -> None:
            config |= {"rope_theta": 1e6, "rope_scaling": {key: "yarn", **settings}}

        answers.append(_logits(tmp_path / key, respell))
    np.testing.assert_array_equal(*answers)
    plain = _logits(tmp_path / "plain", lambda config: config.update(rope_theta=1e6))
    assert np.abs(plain - answers[0]).max() > 0.1


def test_specs_name_exactly_what_a_checkpoint_holds(tmp_path: Path) -> None:
    for tied in (False, True):
        model_dir = tiny_qwen3(tmp_path / str(tied), tied=tied)
        config = json.loads((model_dir / "config.json").read_text())
        with Checkpoint(model_dir) as checkpoint:
            stored = {name: checkpoint.shape(name) for name in checkpoint.names()}
        assert {name: spec.shape for name, spec in tensor_specs(config).items()} == stored
