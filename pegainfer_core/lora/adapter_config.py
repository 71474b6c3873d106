"""adapter_config.json of a PEFT folder, with everything refused that would change the answer.

Knows no tensor and no family.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import msgspec

from pegainfer_core.lora.targets import AdapterTargets, check_layers_pattern, read_targets
from pegainfer_core.weights import ConfigError, bool_field, float_field, int_field
from pegainfer_core.weights.json_file import read_json_object

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CONFIG_NAME: Final = "adapter_config.json"

_MAX_BYTES: Final = 1 << 20
"""Of the file; clients may name any folder, and PEFT writes a thousand or so."""

_MIN_SCALE: Final = 1.2e-38
"""Less is no normal float32."""

_MAX_SCALE: Final = 3.4e38

_UNSUPPORTED: Final[Mapping[str, str]] = {
    "use_dora": "DoRA scales every output by a learned magnitude",
    "modules_to_save": "whole modules are not replaced here",
    "rank_pattern": "all modules of an adapter have one rank here",
    "alpha_pattern": "all modules of an adapter have one scale here",
    "lora_bias": "adapters have no biases here",
    "fan_in_fan_out": "weights are stored as [out, in] here",
    "layer_replication": "layers are not repeated here",
    "trainable_token_indices": "embeddings are not changed here",
    "target_parameters": "only whole linear layers take adapters here",
    "alora_invocation_tokens": "adapters apply to every token here",
    "use_qalora": "QA-LoRA is not computed here",
    "use_bdlora": "block-diagonal adapters are not computed here",
    "kasa_config": "KaSA is not computed here",
    "monteclora_config": "MonteCLoRA is not computed here",
    "arrow_config": "adapters are not routed here",
    "megatron_config": "adapters of Megatron's layers are not read here",
}
"""Settings that must be null, false or empty, and why."""

_PLAIN_STARTS: Final = frozenset({"gaussian", "eva", "orthogonal"})
"""Initial values that leave the base model's weights alone, beside true and false."""


class AdapterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What is needed of it.

    Attributes:
        rank: Of every module.
        scale: What B A x is multiplied with.
        targets: What it changes.
    """

    rank: int
    scale: float
    targets: AdapterTargets


def read_adapter_config(folder: Path, layers: str, max_rank: int) -> AdapterConfig:
    """Read and check the config of an adapter.

    Args:
        folder: As PEFT's `save_pretrained` wrote it.
        layers: Name of the model's list of layers.
        max_rank: The option `--max-lora-rank`.

    Raises:
        ConfigError: It is missing or damaged, or asks for what is not served.
    """
    path = _config_path(folder)
    config, where = read_json_object(path, _MAX_BYTES), str(path)
    if str(config.get("peft_type") or "LORA").upper() != "LORA":
        raise ConfigError(f"{where}: peft_type is {config['peft_type']!r}; only LORA is served")
    _refuse_variants(config, where)
    rank = int_field(config, "r", where=where)
    if rank > max_rank:
        raise ConfigError(
            f"{where}: r is {rank}, but --max-lora-rank is {max_rank}; start with "
            f"--max-lora-rank {rank}"
        )
    check_layers_pattern(config, layers, where)
    return AdapterConfig(
        rank=rank,
        scale=_scale(config, rank, where),
        targets=read_targets(config, where),
    )


def _config_path(folder: Path) -> Path:
    path = folder / CONFIG_NAME
    try:
        missing = not path.exists() and not path.is_symlink()
    except OSError as error:
        raise ConfigError(f"{str(path)[:200]}: cannot be read: {error.strerror}") from error
    if missing:
        raise ConfigError(f"{folder} has no {CONFIG_NAME}; give the folder of a PEFT adapter")
    return path


def _scale(config: Mapping[str, object], rank: int, where: str) -> float:
    """May be negative, as in PEFT, but not nothing, which would look like a bad fine-tune."""
    alpha = float_field(config, "lora_alpha", minimum=-math.inf, where=where)
    by_root = bool_field(config, "use_rslora", default=False, where=where)
    scale = alpha / (math.sqrt(rank) if by_root else rank)
    if abs(scale) > _MAX_SCALE:
        raise ConfigError(f"{where}: lora_alpha is {alpha:g}, which is not finite as float32")
    if abs(scale) < _MIN_SCALE:
        raise ConfigError(
            f"{where}: lora_alpha is {alpha:g}, with which the adapter would change nothing; give "
            "what it was trained with, or ask for the base model"
        )
    return scale


def _refuse_variants(config: Mapping[str, object], where: str) -> None:
    for key, reason in _UNSUPPORTED.items():
        if config.get(key):
            raise ConfigError(
                f"{where}: {key} is {_short(config[key])}, but {reason}; train without it"
            )
    if config.get("bias") not in (None, "none"):
        raise ConfigError(
            f"{where}: bias is {_short(config['bias'])}, but adapters have no biases here; train "
            "with bias='none'"
        )
    start = config.get("init_lora_weights")
    plain = start is None or isinstance(start, bool)
    if not plain and not (isinstance(start, str) and start in _PLAIN_STARTS):
        raise ConfigError(
            f"{where}: init_lora_weights is {_short(start)}, which changes the base model's "
            "weights too; convert it to plain LoRA (PEFT: path_initial_model_for_weight_conversion)"
        )


def _short(value: object) -> str:
    return repr(value)[:100]
