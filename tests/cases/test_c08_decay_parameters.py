"""C08, decay parameters: what a hybrid release keeps in float32 beside bfloat16 weights stays so.

Seen elsewhere: everything is rounded to the type of the config, and the decays of a recurrent
layer, which act on every token of a context, are off by up to 0.4 %.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pegainfer_qwen35.weights import Qwen35Weights

from pegainfer_core.backend import DeltaWeights, DType
from pegainfer_core.testing.tiny import edit_config, tiny_qwen35
from pegainfer_core.weights import (
    ArraySource,
    Checkpoint,
    FloatArray,
    FloatType,
    write_safetensors,
)
from plugins.pegainfer_qwen35.tests.stepper import Stepper

PROMPT = np.random.default_rng(8).integers(5, 1000, 60).tolist()


class Released(ArraySource):
    """bfloat16, but for the decays."""

    def dtype(self, name: str) -> FloatType:
        return "float32" if name.endswith("A_log") else super().dtype(name)

    def _read_into(self, name: str, out: FloatArray, round_to: FloatType) -> None:
        if name.endswith("A_log"):
            out[...] = self._arrays[name]
        else:
            super()._read_into(name, out, round_to)


def release(folder: Path, *, nested: bool) -> tuple[Path, dict[str, FloatArray]]:
    """A checkpoint as it is released, and its decays by layer."""
    wide = tiny_qwen35(folder / "wide", nested=nested)
    with Checkpoint(wide) as checkpoint:
        tensors = {name: checkpoint.read_f32(name) for name in checkpoint.names()}
    model_dir = folder / "released"
    model_dir.mkdir()
    (model_dir / "config.json").write_text((wide / "config.json").read_text())

    def respell(config: dict[str, object]) -> None:
        inner = config.get("text_config", config)
        assert isinstance(inner, dict)
        inner["dtype"] = config["dtype"] = "bfloat16"

    edit_config(model_dir, respell)
    write_safetensors(model_dir, Released(tensors, "bfloat16"))
    return model_dir, {name: t for name, t in tensors.items() if name.endswith("A_log")}


def deltas(weights: Qwen35Weights) -> list[DeltaWeights]:
    mixers = [layer.mixer for layer in weights.layers]
    return [mixer for mixer in mixers if isinstance(mixer, DeltaWeights)]


@pytest.mark.parametrize("nested", [False, True])
def test_decays_stay_float32_and_the_rest_bfloat16(nested: bool, tmp_path: Path) -> None:
    model_dir, decays = release(tmp_path, nested=nested)
    assert any((v.view(np.uint32) & 0xFFFF).any() for v in decays.values()), "they need float32"
    stepper = Stepper(model_dir)
    held = deltas(stepper.weights)
    assert len(held) == len(decays) == 2
    for layer, stored in zip(held, decays.values(), strict=True):
        assert layer.decay_rate.dtype is DType.FLOAT32
        np.testing.assert_array_equal(stepper.backend.to_host(layer.decay_rate, 4), -np.exp(stored))
        assert layer.projection.dtype is layer.conv.dtype is layer.out.dtype is DType.BFLOAT16
    assert stepper.weights.embedding.dtype is DType.BFLOAT16


def test_wrapped_and_flat_give_the_same_logits(tmp_path: Path) -> None:
    flat, nested = (
        Stepper(release(tmp_path / str(n), nested=n)[0]).logits(PROMPT) for n in (False, True)
    )
    np.testing.assert_array_equal(flat, nested)
