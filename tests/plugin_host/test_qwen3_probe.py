"""What the Qwen3 plugin claims. Case C06: no quantized checkpoint is served by accident."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pegainfer_qwen3.plugin import Qwen3Family

from pegainfer_core.contract import LaunchContext
from pegainfer_core.plugin import Claim, Rejection
from pegainfer_core.weights import ConfigError

FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def probe(config: dict[str, object]) -> Claim | Rejection:
    return Qwen3Family().probe(config, Path("/models/m"))


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "qwen3"},
        {"model_type": "qwen3", "quantization_config": None},
        {"model_type": "qwen3", "text_config": {"hidden_size": 8}},
        {"text_config": {"model_type": "qwen3"}},
    ],
)
def test_claims(config: dict[str, object]) -> None:
    assert isinstance(probe(config), Claim)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"model_type": None},
        {"model_type": "qwen3_moe"},
        {"model_type": "qwen3_5", "text_config": {"model_type": "qwen3"}},
        {"model_type": ["qwen3"]},
    ],
)
def test_leaves_to_others(config: dict[str, object]) -> None:
    answer = probe(config)
    assert isinstance(answer, Rejection) and not answer.recognised


@pytest.mark.parametrize(
    ("config", "method"),
    [
        ({"quantization_config": FP8}, "fp8"),
        ({"quantization_config": {"quant_method": "zzz"}}, "zzz"),
        ({"text_config": {"quantization_config": FP8}}, "fp8"),
        ({"quantization_config": {"quant_method": "compressed-tensors"}}, "compressed-tensors"),
        ({"compression_config": {"format": "pack-quantized"}}, "pack-quantized"),
        ({"quantization_config": "fp8"}, "quantization_config"),
    ],
)
def test_refuses_quantized_weights_by_method(
    config: dict[str, object], method: str, tmp_path: Path
) -> None:
    answer = probe({"model_type": "qwen3", **config})
    assert isinstance(answer, Rejection) and answer.recognised
    assert method in answer.reason
    # --family goes past the probe, but not past this.
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3", **config}))
    context = LaunchContext(model_dir=str(tmp_path), family="qwen3", entry_point="")
    with pytest.raises(ConfigError, match=method):
        Qwen3Family().plan(context)
