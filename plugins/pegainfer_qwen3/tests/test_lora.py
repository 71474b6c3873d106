"""Adapters of Qwen3 beside checkpoints whose weights have them worked in, on the NumPy backend."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
import pytest
from pegainfer_qwen3.config import parse_config
from pegainfer_qwen3.lora import lora_layout

from pegainfer_core.lora import AdapterWeights, LoraSlots, PackedAdapter, read_adapter
from pegainfer_core.testing.tiny import ADAPTER_MODULES, tiny_adapter
from pegainfer_core.weights import ArraySource, Checkpoint, load_config, write_safetensors
from plugins.pegainfer_qwen3.tests.stepper import Stepper
from tests.hf import cases

if TYPE_CHECKING:
    from numpy.typing import NDArray

CASE = "gqa5"
PROMPT = cases.prompt(CASE, 45, 0).tolist()
TOLERANCE = 2e-4
ADAPTERS: dict[str, dict[str, object]] = {
    "all": {"rank": 5, "seed": 1},
    "some": {"rank": 18, "use_rslora": True, "seed": 2, "modules": ADAPTER_MODULES[2:6:3]},
}


class Merged(NamedTuple):
    """A model, its adapters, and the logits of checkpoints that have one of them worked in."""

    model: Path
    adapters: list[str]
    logits: list[NDArray[np.float32]]


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Merged:
    root = tmp_path_factory.mktemp("lora")
    model = cases.build(CASE, root / "model")
    names, logits = [], []
    for name, arguments in ADAPTERS.items():
        folder = tiny_adapter(root / name, model, **arguments)  # type: ignore[arg-type]
        names.append(f"{name}={folder}")
        made = merge(model, folder, root / f"{name}_merged")
        logits.append(Stepper(made, num_kv_pages=64).logits(PROMPT))
    return Merged(model, names, logits)


def merge(model: Path, adapter: Path, folder: Path) -> Path:
    """A checkpoint with W + scale * B A in place of W."""
    weights = read_adapter(adapter, lora_layout(parse_config(load_config(model))), 64)
    with Checkpoint(model) as checkpoint:
        tensors = {name: checkpoint.read_f32(name) for name in checkpoint.names()}
    for (layer, module), (down, up) in weights.pairs.items():
        added = up.astype(np.float64) @ down * weights.config.scale
        tensors[f"model.layers.{layer}.{module}.weight"] += added.astype(np.float32)
    write_safetensors(folder, ArraySource(tensors, "float32"))
    for path in model.glob("*.json"):
        shutil.copy(path, folder)
    return folder


def stepper(merged: Merged) -> Stepper:
    made = Stepper(merged.model, lora=merged.adapters, num_kv_pages=256)
    assert made.adapters is not None
    made.adapters.load_at_start(made.context.options)
    return made


def error(made: Stepper, merged: Merged, slot: int, chunks: tuple[int, ...] = ()) -> float:
    found = made.logits(PROMPT, chunks, adapter_slot=slot)
    return float(np.abs(found - merged.logits[slot]).max())


def test_logits_are_those_of_merged_weights(merged: Merged) -> None:
    made = stepper(merged)
    for slot in range(len(ADAPTERS)):
        for chunks in ((), (17, 20), (1,) * 20):
            assert error(made, merged, slot, chunks) < TOLERANCE
    plain = Stepper(merged.model, num_kv_pages=64).logits(PROMPT)
    np.testing.assert_array_equal(made.logits(PROMPT), plain)
    assert all(np.abs(plain - logits).max() > 1 for logits in merged.logits)


@pytest.mark.parametrize("fault", ["scale", *ADAPTER_MODULES])
def test_mistakes_show(fault: str, merged: Merged, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scale left out, or one module."""
    pack = LoraSlots.pack

    def faulty(slots: LoraSlots, weights: AdapterWeights) -> PackedAdapter:
        config = weights.config
        if fault == "scale":
            config = msgspec.structs.replace(config, scale=1.0)
        pairs = {key: pair for key, pair in weights.pairs.items() if key[1] != fault}
        return pack(slots, weights._replace(config=config, pairs=pairs))

    monkeypatch.setattr(LoraSlots, "pack", faulty)
    assert error(stepper(merged), merged, 0) > 100 * TOLERANCE


def test_a_slot_holds_nothing_of_who_was_there_before(merged: Merged) -> None:
    made = stepper(merged)
    assert made.adapters is not None
    folders = [word.partition("=")[2] for word in merged.adapters]
    for name in ADAPTERS:
        made.adapters.remove(name)
    # A higher rank and all modules first: the other changes fewer.
    for name, folder in zip(("b", "a"), reversed(folders), strict=True):
        made.adapters.install(made.adapters.read(name, folder))
    assert np.abs(made.logits(PROMPT, adapter_slot=0) - merged.logits[1]).max() < TOLERANCE
    assert np.abs(made.logits(PROMPT, adapter_slot=1) - merged.logits[0]).max() < TOLERANCE


def test_bfloat16_rounds_what_is_added(tmp_path: Path) -> None:
    """Close to float32, by less than a wrong scale would make."""
    model = cases.build("bf16", tmp_path / "model")
    folder = tiny_adapter(tmp_path / "x", model, rank=8, dtype="bfloat16")
    made = Stepper(model, lora=[f"x={folder}"], num_kv_pages=64)
    assert made.adapters is not None
    made.adapters.load_at_start(made.context.options)
    expected = Stepper(merge(model, folder, tmp_path / "merged"), num_kv_pages=64).logits(PROMPT)
    found = made.logits(PROMPT, adapter_slot=0)
    spread = expected.std()
    assert np.sqrt(((found - expected) ** 2).mean()) < 0.05 * spread
