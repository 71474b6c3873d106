"""Reads config.json and the settings every family needs, whatever spelling a release uses.

Knows no family: sizes and layer layouts are the plugin's business. RoPE has its own module.
Imports nothing heavy, because plugin discovery runs through here.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final, Literal

from pegainfer_core.weights.errors import ConfigError
from pegainfer_core.weights.field import object_field
from pegainfer_core.weights.json_file import read_json_object

__all__ = [
    "FLOAT_TYPES",
    "FloatType",
    "checkpoint_dtype",
    "eos_token_ids",
    "load_config",
    "quantization_method",
    "refuse_quantization",
    "text_config",
]

FloatType = Literal["bfloat16", "float16", "float32"]
FLOAT_TYPES: Final[tuple[FloatType, ...]] = ("bfloat16", "float16", "float32")

_FLOAT_TYPES: Final[Mapping[str, FloatType]] = {
    "bfloat16": "bfloat16",
    "float16": "float16",
    "half": "float16",
    "float32": "float32",
    "float": "float32",
}
#: Spellings of one setting. They move together: when the inner config has any of them, the outer
#: ones say nothing about the text model.
_DTYPE_KEYS: Final = ("dtype", "torch_dtype")
_ROPE_KEYS: Final = ("rope_theta", "rope_parameters", "rope_scaling", "partial_rotary_factor")
_QUANTIZATION_KEYS: Final = ("quantization_config", "compression_config")


def load_config(model_dir: Path) -> dict[str, object]:
    """Parse config.json of a checkpoint folder.

    Raises:
        ConfigError: It is missing, unreadable, not JSON, or not an object.
    """
    path = model_dir / "config.json"
    if not path.exists() and not path.is_symlink():
        raise ConfigError(f"{model_dir} has no config.json; give the folder of a checkpoint")
    return read_json_object(path)


def text_config(config: Mapping[str, object]) -> dict[str, object]:
    """Flatten a config whose text model is described under `text_config`.

    The inner value of a key wins over the outer one; an inner null leaves the outer value. Keys
    that spell one setting (`dtype` and `torch_dtype`; the RoPE keys) are taken from one level.

    Raises:
        ConfigError: `text_config` is not an object.
    """
    inner = object_field(config, "text_config")
    flat = {key: value for key, value in config.items() if key != "text_config"}
    for group in (_DTYPE_KEYS, _ROPE_KEYS, _QUANTIZATION_KEYS):
        if any(inner.get(key) is not None for key in group):
            for key in group:
                flat.pop(key, None)
    for key, value in inner.items():
        if value is not None or key not in flat:
            flat[key] = value
    return flat


def checkpoint_dtype(config: Mapping[str, object]) -> FloatType | None:
    """The type the model computes in, or None when the config leaves it to the tensors.

    Read from `dtype` or `torch_dtype`, inside `text_config` first; in one level `dtype` wins.

    Raises:
        ConfigError: The value is not one of the supported float types.
    """
    flat = text_config(config)
    for key in _DTYPE_KEYS:
        value = flat.get(key)
        if value is None:
            continue
        name = value.removeprefix("torch.") if isinstance(value, str) else ""
        if name not in _FLOAT_TYPES:
            raise ConfigError(
                f"config.json: {key} is {value!r}; supported are bfloat16, float16 and float32"
            )
        return _FLOAT_TYPES[name]
    return None


def eos_token_ids(config: Mapping[str, object]) -> tuple[int, ...]:
    """End-of-text ids of a config.json or generation_config.json, in their order, each once.

    Raises:
        ConfigError: `eos_token_id` is neither a token id nor a list of them.
    """
    value = text_config(config).get("eos_token_id")
    if value is None:
        return ()
    ids: list[int] = []
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, bool) or not isinstance(item, int) or item < 0:
            raise ConfigError(
                f"eos_token_id is {value!r}; expected a token id or a list of token ids"
            )
        ids.append(item)
    return tuple(dict.fromkeys(ids))


def quantization_method(config: Mapping[str, object]) -> str | None:
    """Name of the checkpoint's quantization, at the top level or in `text_config`; None without.

    Raises:
        ConfigError: The quantization settings are not an object.
    """
    flat = text_config(config)
    for key in _QUANTIZATION_KEYS:
        settings = object_field(flat, key)
        if settings:
            return str(settings.get("quant_method") or settings.get("format") or "unnamed")
    return None


def refuse_quantization(config: Mapping[str, object], supported: Collection[str] = ()) -> None:
    """Refuse a quantized checkpoint unless its method is among `supported`.

    Reading such tensors as plain numbers would load without complaint and answer noise.

    Raises:
        ConfigError: The method is not supported; the message names it and what is.
    """
    method = quantization_method(config)
    if method is None or method in supported:
        return
    choices = ", ".join(["unquantized bfloat16, float16 or float32 weights", *sorted(supported)])
    raise ConfigError(
        f"config.json: quantization_config asks for {method!r}, which is not supported here; "
        f"supported: {choices}"
    )
