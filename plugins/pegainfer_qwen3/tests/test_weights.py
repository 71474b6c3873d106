"""Loading: names, types, memory, and checkpoints that do not fit their config."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from pegainfer_qwen3.weights import tensor_specs

from pegainfer_core.testing.tiny import edit_config, tiny_qwen3
from pegainfer_core.weights import (
    ArraySource,
    Checkpoint,
    ConfigError,
    FloatType,
    text_tensor_name,
    write_safetensors,
)
from plugins.pegainfer_qwen3.tests.stepper import Stepper
from tests.zero_weights import write_zeros

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    Tensors = dict[str, NDArray[np.float32]]

PROMPT = list(range(40, 70))


def rewrite(model_dir: Path, edit: Callable[[Tensors], object], dtype: FloatType) -> Path:
    """Change the tensors of a checkpoint in place."""
    with Checkpoint(model_dir) as checkpoint:
        tensors = {name: checkpoint.read_f32(name) for name in checkpoint.names()}
    edit(tensors)
    for path in model_dir.glob("*.safetensors*"):
        path.unlink()
    write_safetensors(model_dir, ArraySource(tensors, dtype))
    return model_dir


def test_fused_parameters_hold_the_tensors_in_order(tmp_path: Path) -> None:
    stepper = Stepper(tiny_qwen3(tmp_path, heads=(4, 2), head_dim=16))
    layer = stepper.weights.layers[1]
    with Checkpoint(tmp_path) as checkpoint:
        for parameter, names in (
            (layer.attention.qkv, ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
            (layer.mlp.gate_up, ("mlp.gate_proj", "mlp.up_proj")),
            (layer.attention.out, ("self_attn.o_proj",)),
        ):
            parts = [checkpoint.read_f32(f"model.layers.1.{name}.weight") for name in names]
            held = stepper.backend.to_host(parameter, parameter.shape[0])
            np.testing.assert_array_equal(held, np.concatenate(parts))


def test_a_tied_head_is_the_embedding_itself(tmp_path: Path) -> None:
    stepper = Stepper(tiny_qwen3(tmp_path, tied=True))
    assert stepper.weights.head is stepper.weights.embedding


def test_float16_answers_as_its_float32_copy(tmp_path: Path) -> None:
    half = tiny_qwen3(tmp_path / "half", dtype="float16")
    full = tiny_qwen3(tmp_path / "full", dtype="float16")
    rewrite(full, lambda tensors: None, "float32")
    edit_config(full, lambda config: config.update(dtype="float32"))
    np.testing.assert_array_equal(Stepper(half).logits(PROMPT), Stepper(full).logits(PROMPT))


@pytest.mark.parametrize("spelling", ["torch.bfloat16", "bfloat16", None])
def test_c08_the_type_is_found_in_every_spelling(tmp_path: Path, spelling: str | None) -> None:
    model_dir = tiny_qwen3(tmp_path, dtype="bfloat16")

    def respell(config: dict[str, object]) -> None:
        del config["dtype"]
        if spelling is not None:
            config["torch_dtype"] = spelling

    expected = Stepper(model_dir).logits(PROMPT)
    edit_config(model_dir, respell)
    stepper = Stepper(model_dir)
    assert stepper.weights.norm.dtype.value == "bfloat16"
    np.testing.assert_array_equal(stepper.logits(PROMPT), expected)


def test_c08_wrapped_text_model(tmp_path: Path) -> None:
    flat = Stepper(tiny_qwen3(tmp_path / "flat")).logits(PROMPT)
    model_dir = tiny_qwen3(tmp_path / "wrapped")

    def wrap_config(config: dict[str, object]) -> None:
        inner = dict(config)
        config.clear()
        config |= {"model_type": "qwen3", "text_config": inner}

    def wrap_names(tensors: Tensors) -> None:
        for name in list(tensors):
            value = tensors.pop(name)
            tensors[name.replace("model.", "model.language_model.", 1)] = value

    edit_config(model_dir, wrap_config)
    rewrite(model_dir, wrap_names, "float32")
    np.testing.assert_array_equal(Stepper(model_dir).logits(PROMPT), flat)


@pytest.mark.parametrize(
    ("stored", "name"),
    [
        ("model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"),
        ("model.language_model.norm.weight", "model.norm.weight"),
        ("language_model.model.norm.weight", "model.norm.weight"),
        ("language_model.lm_head.weight", "lm_head.weight"),
        ("lm_head.weight", "lm_head.weight"),
    ],
)
def test_canonical_names(stored: str, name: str) -> None:
    assert text_tensor_name(stored) == name


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t: t.pop("model.layers.1.mlp.up_proj.weight"), "layers.1.mlp.up_proj.* missing"),
        (lambda t: t.pop("lm_head.weight"), "lm_head.weight is missing"),
        (
            lambda t: t.update({"model.layers.2.mlp.up_proj.weight": np.ones((2, 2), np.float32)}),
            "layers.2.mlp.up_proj.weight is not part of the model",
        ),
        (
            lambda t: t.update({"model.norm.weight": np.ones(3, np.float32)}),
            r"model.norm.weight has shape \(3,\), but the config makes it \(128,\)",
        ),
    ],
)
def test_checkpoints_that_do_not_fit_are_refused(
    tmp_path: Path, edit: Callable[[Tensors], object], message: str
) -> None:
    rewrite(tiny_qwen3(tmp_path), edit, "float32")
    with pytest.raises(ConfigError, match=message):
        Stepper(tmp_path)


def test_leftovers_that_mean_nothing_are_passed_over(tmp_path: Path) -> None:
    """A tied head stored all the same, and the buffers of old conversions."""
    expected = Stepper(tiny_qwen3(tmp_path, tied=True)).logits(PROMPT)
    extra = {
        "lm_head.weight": np.ones((1000, 128), np.float32),
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(16, np.float32),
    }
    rewrite(tmp_path, lambda tensors: tensors.update(extra), "float32")
    np.testing.assert_array_equal(Stepper(tmp_path).logits(PROMPT), expected)


def test_dummy_weights_depend_on_the_seed_only(tmp_path: Path) -> None:
    model_dir = tiny_qwen3(tmp_path)
    (model_dir / "model.safetensors").unlink()
    options = {"load_format": "dummy"}
    first = Stepper(model_dir, seed=3, **options).logits(PROMPT)
    np.testing.assert_array_equal(Stepper(model_dir, seed=3, **options).logits(PROMPT), first)
    other = Stepper(model_dir, seed=4, **options).logits(PROMPT)
    assert np.abs(other - first).max() > 0.5
    assert 2.0 < first.std() < 8.0, "logits spread like a trained model's"


_MEASURE = """
import sys
from pathlib import Path
from plugins.pegainfer_qwen3.tests.stepper import launch_context
from pegainfer_core.backend import NumpyBackend
from pegainfer_qwen3.config import plan_qwen3
from pegainfer_qwen3.engine import load_model
import json, threading, time

def anonymous_bytes():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024

folder = Path(sys.argv[1])
peak, done = 0, False
def watch():
    global peak
    while not done:
        peak = max(peak, anonymous_bytes())
        time.sleep(0.002)
context = launch_context(folder, **json.loads(sys.argv[2]))
thread = threading.Thread(target=watch, daemon=True)
thread.start()
load_model(context, plan_qwen3(context), NumpyBackend())
done = True
thread.join()
print(peak)
"""


@pytest.mark.parametrize("load_format", ["auto", "dummy"])
def test_loading_holds_no_tensor_twice(tmp_path: Path, load_format: str) -> None:
    """Peak anonymous memory <= 2.1 times a bfloat16 checkpoint of about 200 MB, plus 300 MB."""
    config = {
        "model_type": "qwen3",
        "vocab_size": 50_000,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    specs = tensor_specs(config)
    num_values = sum(int(np.prod(spec.shape)) for spec in specs.values())
    if load_format == "auto":
        write_zeros(tmp_path, {name: spec.shape for name, spec in specs.items()})
    options = json.dumps({"load_format": load_format})
    command = [sys.executable, "-c", _MEASURE, str(tmp_path), options]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    peak_bytes = int(run.stdout)
    assert 4 * num_values < peak_bytes, "the weights themselves are held as float32"
    assert peak_bytes <= 2.1 * (2 * num_values) + 300e6
