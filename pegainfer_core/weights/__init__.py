"""Checkpoints: finding them, reading their config and tensors, and making seeded stand-ins.

The names for config and folder are light; those that hold tensors import NumPy when first used,
because plugin discovery reads configs and must not pay for it.
"""

from pegainfer_core.weights.config import (
    FloatType,
    checkpoint_dtype,
    eos_token_ids,
    load_config,
    quantization_method,
    refuse_quantization,
    text_config,
)
from pegainfer_core.weights.errors import ConfigError
from pegainfer_core.weights.field import bool_field, float_field, int_field, object_field
from pegainfer_core.weights.model_dir import hub_cache_dir, resolve_model_dir
from pegainfer_core.weights.rope import RopeConfig, rope_config

__all__ = [
    "ConfigError",
    "FloatType",
    "RopeConfig",
    "bool_field",
    "checkpoint_dtype",
    "eos_token_ids",
    "float_field",
    "hub_cache_dir",
    "int_field",
    "load_config",
    "object_field",
    "quantization_method",
    "refuse_quantization",
    "resolve_model_dir",
    "rope_config",
    "text_config",
]
