"""Loading: how tensors become parameters, and checkpoints that do not fit their config."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from pegainfer_qwen35.weights import tensor_specs

from pegainfer_core.backend import AttentionWeights, DeltaWeights, DType
from pegainfer_core.testing.tiny import edit_config, tiny_qwen35
from pegainfer_core.weights import (
    ArraySource,
    Checkpoint,
    ConfigError,
    load_config,
    write_dummy,
    write_safetensors,
)
from plugins.pegainfer_qwen35.tests.stepper import Stepper
from plugins.pegainfer_qwen35.tests.test_invariance import prompt

if TYPE_CHECKING:
    from pathlib import Path


def test_parameters_hold_the_tensors_in_order(tmp_path: Path) -> None:
    stepper = Stepper(tiny_qwen35(tmp_path, dtype="bfloat16", heads=(4, 2)))
    to_host = stepper.backend.to_host
    delta, attention = stepper.weights.layers[0].mixer, stepper.weights.layers[2].mixer
    assert isinstance(delta, DeltaWeights) and isinstance(attention, AttentionWeights)
    with Checkpoint(tmp_path) as checkpoint:

        def read(name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
            return checkpoint.read_f32(f"model.layers.{name}")

        parts = [read(f"0.linear_attn.in_proj_{part}.weight") for part in ("qkv", *"zba")]
        held = to_host(delta.projection, delta.projection.shape[0])
        np.testing.assert_array_equal(held, np.concatenate(parts))
        np.testing.assert_array_equal(
            to_host(delta.conv, 4), read("0.linear_attn.conv1d.weight")[:, 0].T
        )
        np.testing.assert_array_equal(
            to_host(delta.decay_rate, 4), -np.exp(read("0.linear_attn.A_log"))
        )
        by_heads = read("2.self_attn.q_proj.weight").reshape(4, 2, 32, -1)
        qkv = to_host(attention.qkv, attention.qkv.shape[0])
        np.testing.assert_array_equal(qkv[:128], by_heads[:, 0].reshape(128, -1))
        np.testing.assert_array_equal(qkv[-128:], by_heads[:, 1].reshape(128, -1))
        np.testing.assert_array_equal(qkv[192:256], read("2.self_attn.v_proj.weight"))
        norms = to_host(attention.head_norm, 6)
        np.testing.assert_array_equal(norms[3], 1 + read("2.self_attn.q_norm.weight"))
        np.testing.assert_array_equal(norms[4], 1 + read("2.self_attn.k_norm.weight"))
    # Their sums with one are no bfloat16 values.
    assert attention.head_norm.dtype is stepper.weights.norm.dtype is DType.FLOAT32
    assert delta.norm.dtype is DType.BFLOAT16


def test_a_tied_head_is_the_embedding_itself(tmp_path: Path) -> None:
    stepper = Stepper(tiny_qwen35(tmp_path, tied=True))
    assert stepper.weights.head is stepper.weights.embedding


def test_flat_and_nested_answer_alike(tmp_path: Path) -> None:
    flat, nested = (
        Stepper(tiny_qwen35(tmp_path / str(nested), nested=nested)) for nested in (False, True)
    )
    np.testing.assert_array_equal(flat.logits(prompt(40)), nested.logits(prompt(40)))


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_decays_keep_the_width_they_are_stored_in(dtype: str, tmp_path: Path) -> None:
    """Releases store A_log in float32 beside bfloat16 weights."""
    tiny_qwen35(tmp_path / "whole")
    with Checkpoint(tmp_path / "whole") as checkpoint:
        tensors = {name: checkpoint.read_f32(name) for name in checkpoint.names()}
    decays = tensors["model.layers.0.linear_attn.A_log"].copy()
    assert (decays != decays.astype(np.float16)).any()
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "config.json").write_text((tmp_path / "whole" / "config.json").read_text())
    edit_config(folder, lambda config: config.update(dtype=dtype))
    write_safetensors(folder, ArraySource(tensors, "float32"))
    stepper = Stepper(folder)
    delta = stepper.weights.layers[0].mixer
    assert isinstance(delta, DeltaWeights)
    np.testing.assert_array_equal(stepper.backend.to_host(delta.decay_rate, 4), -np.exp(decays))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"num_hidden_layers": 4, "layer_types": None}, r"layers\.2\.linear_attn.*missing"),
        ({"layer_types": ["linear_attention"] * 2, "num_hidden_layers": 2}, "all 2 layers"),
        ({"linear_num_value_heads": 2}, "has shape"),
        ({"tie_word_embeddings": True, "hidden_size": 64}, "has shape"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(
    edit: dict[str, object], message: str, tmp_path: Path
) -> None:
    tiny_qwen35(tmp_path)
    edit_config(tmp_path, lambda config: config.update(edit))
    with pytest.raises(ConfigError, match=message):
        Stepper(tmp_path)


def test_dummy_weights_are_those_of_a_written_dummy(tmp_path: Path) -> None:
    tiny_qwen35(tmp_path / "tiny")
    written = tmp_path / "written"
    written.mkdir()
    (written / "config.json").write_text((tmp_path / "tiny" / "config.json").read_text())
    write_dummy(written, tensor_specs(load_config(written)), seed=0, dtype="float32")
    made, read = Stepper(written, load_format="dummy"), Stepper(written)
    logits = made.logits(prompt(30))
    np.testing.assert_array_equal(logits, read.logits(prompt(30)))
    assert np.isfinite(logits).all() and logits.std() > 0.5
