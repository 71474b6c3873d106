"""adapter_config.json of a PEFT folder, with everything refused that would change the answer.

Knows no tensor and no family.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import msgspec

from pegainfer_core.weights import ConfigError, bool_field, float_field, int_field
from pegainfer_core.weights.json_file import read_json_object

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CONFIG_NAME: Final = "adapter_config.json"

_MAX_BYTES: Final = 1 << 20
"""Of the file; clients may name any folder, and PEFT writes a thousand or so."""

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
        target_modules: Names as given; empty where a pattern stands in for names.
    """

    rank: int
    scale: float
    target_modules: tuple[str, ...]


def read_adapter_config(folder: Path, max_rank: int) -> AdapterConfig:
    """Read and check the config of an adapter.

    Args:
        folder: As PEFT's `save_pretrained` wrote it.
        max_rank: The option `--max-lora-rank`.

    Raises:
        ConfigError: It is missing or damaged, or asks for what is not served.
    """
    path = folder / CONFIG_NAME
    if not path.exists() and not path.is_symlink():
        raise ConfigError(f"{folder} has no {CONFIG_NAME}; give the folder of a PEFT adapter")
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
    alpha = float_field(config, "lora_alpha", minimum=-math.inf, where=where)
    by_root = bool_field(config, "use_rslora", default=False, where=where)
    scale = alpha / (math.sqrt(rank) if by_root else rank)
    if abs(scale) > _MAX_SCALE:
        raise ConfigError(f"{where}: lora_alpha is {alpha:g}, which is not finite as float32")
    return AdapterConfig(
        rank=rank,
        scale=scale,
        target_modules=_target_modules(config, where),
    )


def _refuse_variants(config: Mapping[str, object], where: str) -> None:
    for key, reason in _UNSUPPORTED.items():
        if config.get(key):
            raise ConfigError(f"{where}: {key} is {_short(config[key])}, but {reason}")
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


def _target_modules(config: Mapping[str, object], where: str) -> tuple[str, ...]:
    value = config.get("target_modules")
    if value is None or isinstance(value, str):
        return ()
    if not isinstance(value, list) or any(not isinstance(item, str) for item in value):
        raise ConfigError(f"{where}: target_modules is {_short(value)}; expected a list of names")
    return tuple(value)


def _short(value: object) -> str:
    return repr(value)[:100]
