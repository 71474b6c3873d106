"""Reading adapters: what is read, and every refusal with the file, the value and what to do."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from pegainfer_core.lora import LoraLayout, gated_decoder_layout, read_adapter
from pegainfer_core.testing.tiny import ADAPTER_MODULES, tiny_adapter, tiny_qwen3
from pegainfer_core.weights import ConfigError

LAYOUT = gated_decoder_layout(num_layers=2, hidden=64, intermediate=96, query_width=64, kv_width=32)
PREFIX = "base_model.model.model.layers"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return tiny_qwen3(folder, hidden=64, intermediate=96, head_dim=16, vocab=300)


def refused(folder: Path, *words: str, layout: LoraLayout = LAYOUT, max_rank: int = 16) -> None:
    with pytest.raises(ConfigError) as caught:
        read_adapter(folder, layout, max_rank)
    for word in (str(folder), *words):
        assert word in str(caught.value)


def edit(folder: Path, **settings: object) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def test_pairs_scale_and_types(model: Path, tmp_path: Path) -> None:
    full = read_adapter(tiny_adapter(tmp_path / "a", model, rank=4, alpha=6.0), LAYOUT, 16)
    assert (full.config.rank, full.config.scale) == (4, 1.5)
    assert set(full.pairs) == {(i, module) for i in range(2) for module in ADAPTER_MODULES}
    pair = full.pairs[(1, "mlp.down_proj")]
    assert (pair.down.shape, pair.up.shape) == ((4, 96), (64, 4))
    for dtype in ("bfloat16", "float16"):
        folder = tiny_adapter(
            tmp_path / dtype, model, rank=9, use_rslora=True, modules=ADAPTER_MODULES[:1],
            dtype=dtype, seed=3,
        )  # fmt: skip
        found = read_adapter(folder, LAYOUT, 16)
        assert found.config.scale == pytest.approx(8 / math.sqrt(9))
        assert set(found.pairs) == {(i, "self_attn.q_proj") for i in range(2)}


def test_the_digest_is_that_of_the_content(model: Path, tmp_path: Path) -> None:
    made = {
        "one": tiny_adapter(tmp_path / "one", model),
        "same": tiny_adapter(tmp_path / "same", model),
        "seed": tiny_adapter(tmp_path / "seed", model, seed=1),
        "type": tiny_adapter(tmp_path / "type", model, dtype="bfloat16"),
        "scale": tiny_adapter(tmp_path / "scale", model),
        "fewer": tiny_adapter(tmp_path / "fewer", model, modules=ADAPTER_MODULES[1:]),
    }
    edit(made["scale"], lora_alpha=8.5)
    digests = {name: read_adapter(folder, LAYOUT, 16).digest for name, folder in made.items()}
    assert digests["one"] == digests.pop("same")
    assert len(set(digests.values())) == len(digests)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"use_dora": True}, ["use_dora", "DoRA"]),
        ({"bias": "all"}, ["bias", "'all'"]),
        ({"modules_to_save": ["lm_head"]}, ["modules_to_save", "lm_head"]),
        ({"rank_pattern": {"q_proj": 2}}, ["rank_pattern", "q_proj"]),
        ({"alpha_pattern": {"q_proj": 2}}, ["alpha_pattern"]),
        ({"lora_bias": True}, ["lora_bias"]),
        ({"fan_in_fan_out": True}, ["fan_in_fan_out"]),
        ({"init_lora_weights": "pissa"}, ["init_lora_weights", "pissa"]),
        ({"init_lora_weights": ["pissa"]}, ["init_lora_weights", "['pissa']"]),
        ({"peft_type": "IA3"}, ["peft_type", "IA3"]),
        ({"target_parameters": ["experts"]}, ["target_parameters"]),
        ({"r": 0}, ["r is 0"]),
        ({"r": 17}, ["r is 17", "--max-lora-rank is 16"]),
        ({"r": 3}, ["[4, 64]", "[3, 64]"]),
        ({"lora_alpha": "much"}, ["lora_alpha", "much"]),
        ({"lora_alpha": None}, ["lora_alpha"]),
        ({"lora_alpha": 10**400}, ["lora_alpha is 1000"]),
        ({"lora_alpha": -1e300}, ["lora_alpha is -1e+300", "float32"]),
        ({"lora_alpha": math.nan}, ["lora_alpha is nan", "finite number"]),
        ({"lora_alpha": -math.inf}, ["lora_alpha is -inf", "finite number"]),
        ({"lora_alpha": 0}, ["lora_alpha is 0", "change nothing"]),
        ({"lora_alpha": -1e-300}, ["lora_alpha is -1e-300", "change nothing"]),
        ({"target_modules": 3}, ["target_modules"]),
        ({"target_modules": None}, ["target_modules is missing"]),
        ({"target_modules": "q_proj"}, ["target_modules is 'q_proj'", "list"]),
        ({"target_modules": ""}, ["target_modules is ''"]),
        ({"target_modules": []}, ["self_attn.q_proj", "target_modules"]),
        ({"target_modules": ["q_proj"]}, ["layers.0.self_attn.k_proj", "target_modules"]),
        ({"exclude_modules": ["mlp.up_proj"]}, ["layers.0.mlp.up_proj", "exclude_modules"]),
        ({"exclude_modules": {"up_proj": 1}}, ["exclude_modules", "list of names"]),
        ({"layers_to_transform": [1]}, ["layers.0.", "layers_to_transform"]),
        ({"layers_to_transform": 0}, ["layers.1.", "layers_to_transform"]),
        ({"layers_to_transform": [0, True]}, ["layers_to_transform is [0, True]"]),
        ({"layers_to_transform": [-1]}, ["layers_to_transform is [-1]"]),
        ({"layers_to_transform": "0"}, ["layers_to_transform is '0'"]),
        ({"layers_to_transform": [0, 1], "target_modules": ".*proj"}, ["is a pattern"]),
        ({"layers_pattern": "layers"}, ["layers_pattern is 'layers'", "layers_to_transform"]),
        ({"layers_to_transform": [0, 1], "layers_pattern": "h"}, ["layers_pattern", "'layers'"]),
        ({"target_modules": ["q_proj", "lm_head"]}, ["target_modules", "lm_head"]),
    ],
)
def test_settings_that_are_refused(
    settings: dict[str, object], words: list[str], model: Path, tmp_path: Path
) -> None:
    folder = tiny_adapter(tmp_path / "adapter", model)
    edit(folder, **settings)
    refused(folder, *words)


@pytest.mark.parametrize(
    "settings",
    [
        {"target_modules": "all-linear", "init_lora_weights": "gaussian", "unknown": [1]},
        {"target_modules": r".*\.(self_attn|mlp)\.\w+_proj"},
        {"layers_to_transform": [0, 1, 99]},
        {"layers_to_transform": [], "exclude_modules": ["lm_head"], "layers_pattern": []},
        {"layers_to_transform": [1, 0], "layers_pattern": ["h", "layers"]},
        {"lora_dropout": 0.5, "ensure_weight_tying": True, "modules_to_save": []},
    ],
)
def test_settings_that_change_nothing(
    settings: dict[str, object], model: Path, tmp_path: Path
) -> None:
    folder = tiny_adapter(tmp_path / "adapter", model)
    plain = read_adapter(folder, LAYOUT, 16)
    edit(folder, **settings)
    assert read_adapter(folder, LAYOUT, 16).digest == plain.digest


@pytest.mark.parametrize(
    "targets", [["model.layers.1.self_attn.q_proj"], ["self_attn.q_proj"], ["q_proj", "v_proj"]]
)
def test_targets_may_be_any_end_of_a_name(targets: list[str], model: Path, tmp_path: Path) -> None:
    full = tiny_adapter(tmp_path / "full", model)
    values = read_adapter(full, LAYOUT, 16).pairs
    pair = values[(1, "self_attn.q_proj")]
    name = f"{PREFIX}.1.self_attn.q_proj"
    tensors = {f"{name}.lora_A.weight": pair.down, f"{name}.lora_B.weight": pair.up}
    folder = tiny_adapter(tmp_path / "one", model, modules=(), tensors=tensors)
    # A name in full is meant whatever the layers are, as in PEFT.
    layers = [0] if targets[0].startswith("model") else [1]
    excluded = ["v_proj"] if len(targets) > 1 else None
    edit(folder, target_modules=targets, layers_to_transform=layers, exclude_modules=excluded)
    assert list(read_adapter(folder, LAYOUT, 16).pairs) == [(1, "self_attn.q_proj")]


def test_tensors_that_are_refused(model: Path, tmp_path: Path) -> None:
    first = f"{PREFIX}.0.self_attn.q_proj"
    cases = {
        "infinite": ({f"{first}.lora_B.weight": np.full((64, 4), np.inf, np.float32)}, first),
        "embedding": (
            {"base_model.model.model.embed_tokens.lora_embedding_A": np.ones((4, 300), np.float32)},
            "lora_embedding_A",
        ),
        "dora": ({f"{first}.lora_magnitude_vector": np.ones(64, np.float32)}, "DoRA"),
        "half": ({f"{PREFIX}.0.mlp.x_proj.lora_A.weight": np.ones((4, 64), np.float32)}, "x_proj"),
        "turned": ({f"{first}.lora_A.weight": np.ones((64, 4), np.float32)}, "[64, 4]"),
    }
    for name, (tensors, word) in cases.items():
        refused(tiny_adapter(tmp_path / name, model, tensors=tensors), word)
    lone = tiny_adapter(
        tmp_path / "lone",
        model,
        modules=("mlp.up_proj",),
        tensors={f"{first}.lora_A.weight": np.ones((4, 64), np.float32)},
    )
    refused(lone, f"{first}.lora_B.weight")


def test_folders_that_are_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="File name too long"):
        read_adapter(tmp_path / ("x" * 5000), LAYOUT, 16)
    refused(tmp_path / "nowhere", "adapter_config.json")
    refused(model, "adapter_config.json")
    folder = tiny_adapter(tmp_path / "adapter", model)
    weights = folder / "adapter_model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-7])
    refused(folder, "truncated")
    weights.rename(folder / "adapter_model.bin")
    refused(folder, "adapter_model.bin", "safetensors")
    (folder / "adapter_config.json").write_text("{")
    refused(folder, "JSON")


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_files_without_an_end_are_not_read(model: Path, tmp_path: Path, name: str) -> None:
    path = tiny_adapter(tmp_path / "a", model) / name
    path.unlink()
    path.symlink_to("/dev/zero")
    refused(tmp_path / "a", name, "not a regular file")
    path.unlink()
    os.mkfifo(path)
    refused(tmp_path / "a", name, "not a regular file")


def test_a_config_of_megabytes_is_refused(model: Path, tmp_path: Path) -> None:
    edit(tiny_adapter(tmp_path / "a", model), note="x" * (1 << 20))
    refused(tmp_path / "a", "adapter_config.json", "1048576 bytes")


def test_a_layer_with_thousands_of_digits_is_no_layer(model: Path, tmp_path: Path) -> None:
    name = f"{PREFIX}.{'9' * 5000}.mlp.up_proj.lora_A.weight"
    tiny_adapter(tmp_path / "a", model, tensors={name: np.zeros((4, 64), np.float32)})
    refused(tmp_path / "a", "999")
