"""config.json and options: every spelling means the same, and every fault is named."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pegainfer_qwen35.config import parse_config, plan_qwen35
from pegainfer_qwen35.options import Qwen35Options
from pegainfer_qwen35.plugin import Qwen35Family
from pegainfer_qwen35.state import num_snapshots, state_layout
from pegainfer_qwen35.weights import tensor_specs

from pegainfer_core.backend import DType
from pegainfer_core.contract import CoreOptions
from pegainfer_core.plugin import Rejection
from pegainfer_core.testing.tiny import tiny_qwen35
from pegainfer_core.weights import Checkpoint, ConfigError, text_tensor_name
from plugins.pegainfer_qwen35.tests.stepper import launch_context

if TYPE_CHECKING:
    from pathlib import Path

    from pegainfer_core.contract import ServePlan

#: Sizes of the 4B release.
QWEN35_4B: dict[str, Any] = {
    "attention_bias": False,
    "attn_output_gate": True,
    "dtype": "bfloat16",
    "full_attention_interval": 4,
    "head_dim": 256,
    "hidden_act": "silu",
    "hidden_size": 2560,
    "intermediate_size": 9216,
    "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 8,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
    "mamba_ssm_dtype": "float32",
    "max_position_embeddings": 262144,
    "model_type": "qwen3_5_text",
    "mtp_num_hidden_layers": 1,
    "num_attention_heads": 16,
    "num_hidden_layers": 32,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06,
    "rope_parameters": {
        "mrope_interleaved": True,
        "mrope_section": [11, 11, 10],
        "partial_rotary_factor": 0.25,
        "rope_theta": 10000000,
        "rope_type": "default",
    },
    "tie_word_embeddings": True,
    "vocab_size": 248320,
}
RELEASE: dict[str, Any] = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "text_config": QWEN35_4B,
    "tie_word_embeddings": True,
    "vision_config": {"depth": 24, "hidden_size": 1024},
}
SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "layer_types": ...,
    "max_position_embeddings": 4096,
    "num_hidden_layers": 4,
    "vocab_size": 300,
}


def changed(**changes: object) -> dict[str, Any]:
    config = QWEN35_4B | changes
    return {key: value for key, value in config.items() if value is not ...}


def plan(
    path: Path, config: dict[str, Any], own: dict[str, float] | None = None, **options: object
) -> ServePlan:
    (path / "config.json").write_text(json.dumps(config))
    context = launch_context(path, **({"backend": "numpy"} | options))
    return plan_qwen35(msgspec.structs.replace(context, family_options=own or {}))


def test_released_config_nested_and_flat() -> None:
    config = parse_config(RELEASE)
    assert config == parse_config(QWEN35_4B)
    assert (config.dtype, config.tied, config.context_tokens) == ("bfloat16", True, 262144)
    assert (config.num_linear_layers, config.num_full_layers) == (24, 8)
    assert (config.rope.theta, config.rope.rotary_dim) == (1e7, 64)
    assert config.delta.conv_width == 8192
    # What one decode step multiplies with, besides the head.
    assert config.layer_matrix_values == 32 * 3 * 2560 * 9216 + 2560 * (
        24 * (8192 + 4096 + 64 + 4096) + 8 * (8192 + 2048 + 4096)
    )


def test_layer_kinds_follow_from_the_interval() -> None:
    assert parse_config(changed(layer_types=...)) == parse_config(QWEN35_4B)
    config = parse_config(changed(layer_types=None, full_attention_interval=2))
    assert config.linear_layers == (True, False) * 16


def test_what_releases_leave_out_has_the_reference_s_default() -> None:
    rope = {"rope_type": "default", "rope_theta": 10000000}
    short = changed(full_attention_interval=..., rope_parameters=rope, linear_conv_kernel_dim=...)
    assert parse_config(short) == parse_config(QWEN35_4B)
    assert not parse_config(changed(tie_word_embeddings=...)).tied


def test_of_two_words_on_the_head_the_outer_holds() -> None:
    assert not parse_config(RELEASE | {"tie_word_embeddings": False}).tied
    inner_only = {k: v for k, v in RELEASE.items() if k != "tie_word_embeddings"}
    assert parse_config(inner_only).tied


@pytest.mark.parametrize(
    "missing",
    [
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "max_position_embeddings",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_key_head_dim",
        "linear_value_head_dim",
    ],
)
def test_a_missing_size_is_named(missing: str) -> None:
    with pytest.raises(ConfigError, match=f"{missing} is missing"):
        parse_config(changed(**{missing: ...}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_key_value_heads": 5}, "num_attention_heads 16 is not a multiple of .* 5"),
        ({"linear_num_value_heads": 40}, "linear_num_value_heads 40 is not a multiple of .* 16"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"attention_bias": True}, "attention_bias is true"),
        ({"attn_output_gate": False}, "attn_output_gate is false"),
        *(({"hidden_act": odd}, f"hidden_act is {odd!r}") for odd in ("", 0, False, {})),
        ({"mamba_ssm_dtype": "bfloat16"}, "mamba_ssm_dtype is 'bfloat16'"),
        *(({"mamba_ssm_dtype": odd}, f"mamba_ssm_dtype is {odd!r}") for odd in ("", 0, {})),
        *(
            ({f"linear_{key}": 10**30}, f"linear_{key} is {10**30}; more than 4096")
            for key in ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")
        ),
        ({"layer_types": ["full_attention"] * 31 + ["sliding_attention"]}, "layer_types"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "2 layers, .* is 32"),
        ({"layer_types": ["full_attention"] * 32}, "all 32 layers are full_attention"),
        ({"linear_conv_kernel_dim": 1}, "linear_conv_kernel_dim is 1"),
        ({"full_attention_interval": 0, "layer_types": ...}, "full_attention_interval is 0"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
    ],
)
def test_a_fault_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config(changed(**changes))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "qwen3_5_moe", "text_config": {"num_experts": 256}}, "mixture of experts"),
        ({"model_type": "qwen3_5_moe_text"}, "mixture of experts"),
        ({"model_type": "qwen3_5_text", "num_experts": 8}, "mixture of experts"),
        (RELEASE | {"quantization_config": {"quant_method": "fp8"}}, "'fp8'"),
    ],
)
def test_forms_that_cannot_be_served_are_recognised(
    config: dict[str, Any], words: str, tmp_path: Path
) -> None:
    answer = Qwen35Family().probe(config, tmp_path)
    assert isinstance(answer, Rejection)
    assert answer.recognised
    assert words in answer.reason
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=words):
        Qwen35Family().plan(launch_context(tmp_path))


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_specs_name_exactly_what_a_checkpoint_holds(
    nested: bool, tied: bool, tmp_path: Path
) -> None:
    tiny_qwen35(tmp_path, tied=tied, nested=nested)
    config = json.loads((tmp_path / "config.json").read_text())
    with Checkpoint(tmp_path) as checkpoint:
        stored = {
            text_tensor_name(name): checkpoint.shape(name)
            for name in checkpoint.names()
            if not name.startswith(("model.visual.", "mtp."))
        }
    assert {name: spec.shape for name, spec in tensor_specs(config).items()} == stored


def test_parts_that_are_not_served_are_told_in_one_line(tmp_path: Path) -> None:
    (note,) = plan(tmp_path, RELEASE, max_model_len=4096).notes
    assert "vision tower (images are refused) and multi-token prediction" in note
    assert plan(tmp_path, changed(**SMALL, mtp_num_hidden_layers=0)).notes == []


@pytest.mark.parametrize(
    ("own", "options", "message"),
    [
        ({"state_cache_gib": -1.0}, {}, "--state-cache-gib -1 must be a number of at least 0"),
        ({"state_cache_gib": float("inf")}, {}, "--state-cache-gib inf must be a number"),
        ({"state_cache_gib": 1e-6}, {}, "holds no recurrent state of 6.1 MiB"),
        ({"state_cache_gib": 0.0}, {"kv_offload": "host"}, "raise --state-cache-gib, or leave"),
        ({}, {"max_model_len": 4097}, "--max-model-len 4097 must be from 2 to 4096"),
        ({}, {"num_kv_pages": 0}, "--num-kv-pages 0"),
        ({}, {"backend": "cuda"}, "--backend cuda"),
    ],
)
def test_impossible_options_are_named(
    own: dict[str, float], options: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(tmp_path, changed(**SMALL), own, **options)


@pytest.mark.parametrize("gib", [1e12, 1e300])
def test_any_size_of_the_state_cache_is_counted(gib: float, tmp_path: Path) -> None:
    """Without more snapshots than can be of use, and without an overflow."""
    layout = state_layout(parse_config(changed(**SMALL)), DType.FLOAT32)
    own = Qwen35Options(state_cache_gib=gib)
    assert num_snapshots(layout, CoreOptions(), own, "numpy") == 1 << 14
    assert plan(tmp_path, changed(**SMALL), {"state_cache_gib": gib}).max_num_seqs == 256


def test_pages_hold_the_attention_layers_alone(tmp_path: Path) -> None:
    made = plan(tmp_path, QWEN35_4B)
    token_bytes = 8 * 2 * 4 * 256 * 2
    assert made.num_pages == (2 << 30) // (16 * token_bytes)


def test_larger_models_take_fewer_prompt_tokens_a_step(tmp_path: Path) -> None:
    small = plan(tmp_path, changed(**SMALL)).max_prefill_tokens
    medium = plan(tmp_path, changed(hidden_size=512, intermediate_size=1024)).max_prefill_tokens
    large = plan(tmp_path, QWEN35_4B).max_prefill_tokens
    assert small > medium > large >= 8
    assert plan(tmp_path, QWEN35_4B, max_prefill_tokens=7).max_prefill_tokens == 7


def test_planning_imports_nothing_heavy(tmp_path: Path) -> None:
    plan(tmp_path, changed(**SMALL))
    code = (
        "import sys; sys.modules.update({name: None for name in ('numpy', 'cupy', 'torch')}); "
        "from pegainfer_core.contract import LaunchContext; "
        "from pegainfer_qwen35.plugin import Qwen35Family; "
        f"context = LaunchContext(model_dir={str(tmp_path)!r}, family='qwen35', entry_point='x'); "
        "assert Qwen35Family().plan(context).max_model_len == 4096"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
