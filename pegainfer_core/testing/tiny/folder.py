"""Writes the files of a checkpoint folder, in the new or the old spelling of config.json.

Knows no family beyond the keys that were respelled.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from pegainfer_core.testing.byte_tokenizer import byte_tokenizer
from pegainfer_core.weights import ArraySource, FloatArray, FloatType, write_safetensors

__all__ = ["JsonObject", "edit_config", "old_spelling", "write_folder"]

JsonObject = dict[str, object]


def write_folder(
    model_dir: Path,
    config: JsonObject,
    tensors: Mapping[str, FloatArray],
    *,
    dtype: FloatType,
    num_shards: int,
    generation_config: Mapping[str, object] | None,
    chat_template: str | None,
) -> Path:
    """Write config, weights, the byte tokenizer and, unless None, generation_config.json.

    Raises:
        ConfigError: The folder already holds weights.
    """
    write_safetensors(model_dir, ArraySource(tensors, dtype), num_shards=num_shards)
    _write_json(model_dir / "config.json", config)
    if generation_config is not None:
        _write_json(model_dir / "generation_config.json", generation_config)
    return byte_tokenizer(model_dir, chat_template=chat_template)


def edit_config(model_dir: Path, edit: Callable[[JsonObject], object]) -> None:
    """Change config.json in place, for tests of other spellings and of faults."""
    path = model_dir / "config.json"
    config: JsonObject = json.loads(path.read_text(encoding="utf-8"))
    edit(config)
    _write_json(path, config)


def old_spelling(config: JsonObject) -> JsonObject:
    """As releases before transformers 5 wrote it: `torch_dtype`, `rope_theta`, `rope_scaling`."""
    old = dict(config)
    old["torch_dtype"] = old.pop("dtype")
    rope = old.pop("rope_parameters")
    if not isinstance(rope, dict):
        raise TypeError(f"rope_parameters is {rope!r}; expected a dict")
    scaling = {key: value for key, value in rope.items() if key not in ("rope_theta", "rope_type")}
    old["rope_theta"] = rope["rope_theta"]
    plain = rope["rope_type"] == "default"
    old["rope_scaling"] = None if plain else {"type": rope["rope_type"], **scaling}
    return old


def _write_json(path: Path, value: Mapping[str, object]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
