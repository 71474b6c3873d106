"""Checkpoints: finding them, reading their config and tensors, and making seeded stand-ins.

The names for config and folder are light; those that hold tensors import NumPy when first used,
because plugin discovery reads configs and must not pay for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from pegainfer_core.weights.config import (
    FloatType,
    checkpoint_dtype,
    eos_token_ids,
    load_config,
    quantization_method,
    refuse_quantization,
    text_config,
)
from pegainfer_core.weights.decoder_config import (
    HeadSizes,
    attention_heads,
    layer_count,
    model_type,
    require_multiple,
    require_silu,
)
from pegainfer_core.weights.decoder_names import EMBEDDING, HEAD, NORM, unread_names
from pegainfer_core.weights.errors import ConfigError
from pegainfer_core.weights.field import bool_field, float_field, int_field, object_field
from pegainfer_core.weights.model_dir import hub_cache_dir, resolve_model_dir
from pegainfer_core.weights.progress_bar import loading_bar
from pegainfer_core.weights.rope import RopeConfig, rope_config
from pegainfer_core.weights.spec import TensorKind, TensorSpec, TensorSpecs

if TYPE_CHECKING:
    from pegainfer_core.weights.checkpoint import Checkpoint
    from pegainfer_core.weights.dummy import DummyCheckpoint, write_dummy
    from pegainfer_core.weights.float_convert import FloatArray, round_floats
    from pegainfer_core.weights.loader import ParameterLoader, Progress
    from pegainfer_core.weights.opening import open_source, text_tensor_name
    from pegainfer_core.weights.source import ArraySource, TensorSource, compute_dtype
    from pegainfer_core.weights.writer import write_safetensors

__all__ = [
    "EMBEDDING",
    "HEAD",
    "NORM",
    "ArraySource",
    "Checkpoint",
    "ConfigError",
    "DummyCheckpoint",
    "FloatArray",
    "FloatType",
    "HeadSizes",
    "ParameterLoader",
    "Progress",
    "RopeConfig",
    "TensorKind",
    "TensorSource",
    "TensorSpec",
    "TensorSpecs",
    "attention_heads",
    "bool_field",
    "checkpoint_dtype",
    "compute_dtype",
    "eos_token_ids",
    "float_field",
    "hub_cache_dir",
    "int_field",
    "layer_count",
    "load_config",
    "loading_bar",
    "model_type",
    "object_field",
    "open_source",
    "quantization_method",
    "refuse_quantization",
    "require_multiple",
    "require_silu",
    "resolve_model_dir",
    "rope_config",
    "round_floats",
    "text_config",
    "text_tensor_name",
    "unread_names",
    "write_dummy",
    "write_safetensors",
]

_NEED_NUMPY = {
    "Checkpoint": "checkpoint",
    "DummyCheckpoint": "dummy",
    "write_dummy": "dummy",
    "FloatArray": "float_convert",
    "round_floats": "float_convert",
    "ParameterLoader": "loader",
    "Progress": "loader",
    "open_source": "opening",
    "text_tensor_name": "opening",
    "ArraySource": "source",
    "TensorSource": "source",
    "compute_dtype": "source",
    "write_safetensors": "writer",
}


def __getattr__(name: str) -> object:
    if name in _NEED_NUMPY:
        return getattr(import_module(f"{__name__}.{_NEED_NUMPY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
