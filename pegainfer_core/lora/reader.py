"""Reads an adapter's folder into arrays, and sees to it that it fits the model exactly.

What fits nothing is an error that names it: an adapter that changes nothing would look like a bad
fine-tune. Knows no backend.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import numpy as np

from pegainfer_core.lora.adapter_config import CONFIG_NAME, AdapterConfig, read_adapter_config
from pegainfer_core.lora.targets import is_end
from pegainfer_core.weights import ConfigError
from pegainfer_core.weights.float_convert import BYTES_PER_VALUE, decode_floats
from pegainfer_core.weights.safetensors_file import SafetensorsFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pegainfer_core.lora.layout import LoraLayout
    from pegainfer_core.weights import FloatArray, FloatType

WEIGHTS_NAME: Final = "adapter_model.safetensors"
_PREFIX: Final = "base_model.model."
_NAMED: Final = 4
_SIDES: Final = ("lora_A.weight", "lora_B.weight")


class LowRankPair(NamedTuple):
    """One module's matrices: `down` [rank, in] and `up` [out, rank], as they were stored."""

    down: FloatArray
    up: FloatArray


class AdapterWeights(NamedTuple):
    """A whole adapter.

    Attributes:
        config: Rank and scale.
        pairs: By layer and name of the module; those it leaves alone are not there.
        digest: SHA-256 of all that shapes what it adds: equal for equal adapters only.
    """

    config: AdapterConfig
    pairs: dict[tuple[int, str], LowRankPair]
    digest: str


def read_adapter(folder: Path, layout: LoraLayout, max_rank: int) -> AdapterWeights:
    """Read an adapter in PEFT's format.

    Args:
        folder: Holds adapter_config.json and adapter_model.safetensors.
        layout: Where the model takes adapters.
        max_rank: The option `--max-lora-rank`.

    Raises:
        ConfigError: It cannot be read, asks for what is not served, or was made for another model.
    """
    config = read_adapter_config(folder, layout.layers, max_rank)
    path = folder / WEIGHTS_NAME
    if not path.exists():
        other = folder / "adapter_model.bin"
        hint = "; adapter_model.bin is not read, save it as safetensors" if other.exists() else ""
        raise ConfigError(f"{folder} has no {WEIGHTS_NAME}{hint}")
    file = SafetensorsFile(path)
    try:
        places = _places(file, layout)
        _check_pairs(path, places)
        _check_targets(folder, config, layout, places)
        _check_shapes(file, layout, config.rank, places)
        arrays = {key: _read(file, name) for key, name in places.items()}
        digest = _digest(config, file, places)
    finally:
        file.close()
    modules = dict.fromkeys((layer, module) for layer, module, _ in arrays)
    pairs = {
        key: LowRankPair(*(arrays[(*key, side)] for side in _SIDES)) for key in sorted(modules)
    }
    return AdapterWeights(config, pairs, digest)


_Place = tuple[int, str, str]
"""Layer, module, and which of its matrices."""


def _places(file: SafetensorsFile, layout: LoraLayout) -> dict[_Place, str]:
    """Which tensor is which."""
    modules = "|".join(re.escape(name) for name in layout.module_names())
    sides = "|".join(re.escape(side) for side in _SIDES)
    known = re.compile(
        rf"{re.escape(_PREFIX + layout.layers)}\.(\d{{1,9}})\.({modules})\.({sides})"
    )
    found: dict[_Place, str] = {}
    strange = []
    for name in file.tensors:
        match = known.fullmatch(name)
        if match and int(match[1]) < layout.num_layers:
            found[(int(match[1]), match[2], match[3])] = name
        else:
            strange.append(name)
    if strange or not found:
        raise ConfigError(f"{file.path}: {_explain(strange, layout)}")
    return found


def _explain(strange: list[str], layout: LoraLayout) -> str:
    if not strange:
        return "holds no tensors"
    if any("lora_magnitude_vector" in name for name in strange):
        return f"holds magnitudes of DoRA, which is not served: {_listed(strange)}"
    served = ", ".join(name.rpartition(".")[2] for name in layout.module_names())
    return (
        f"{_listed(strange)} fit nothing in this model, whose adapters are named "
        f"{_PREFIX}{layout.layers}.N.MODULE.lora_A.weight and .lora_B.weight with N below "
        f"{layout.num_layers} and a MODULE of {served}; leaving them out would change the answers"
    )


def _check_pairs(path: Path, places: Mapping[_Place, str]) -> None:
    for (layer, module, side), name in places.items():
        other = _SIDES[side == _SIDES[0]]
        if (layer, module, other) not in places:
            missing = name.removesuffix(side) + other
            raise ConfigError(f"{path}: has {name}, but not {missing}; save the adapter again")


def _check_targets(
    folder: Path, config: AdapterConfig, layout: LoraLayout, places: Mapping[_Place, str]
) -> None:
    """Config and tensors must name the same, or something would be left out in silence."""
    names = {f"{layout.layers}.{layer}.{module}": layer for layer, module, _ in places}
    present = {*names, *(module for _, module, _ in places)}
    excluded = config.targets.excluded
    lacking = [
        target
        for target in config.targets.names or ()
        if not any(is_end(target, name) for name in present)
        and not any(is_end(end, target) or is_end(target, end) for end in excluded)
    ]
    if lacking:
        served = ", ".join(sorted(layout.module_names()))
        raise ConfigError(
            f"{folder}: target_modules names {', '.join(lacking[:_NAMED])}, for which "
            f"{WEIGHTS_NAME} has no tensors; adapters of this model change {served}"
        )
    for name, layer in names.items():
        field = config.targets.left_out_by(layer, name)
        if field is not None:
            raise ConfigError(
                f"{folder}: {WEIGHTS_NAME} has tensors for {name}, which {field} of {CONFIG_NAME} "
                "leaves out; save the adapter again, or mend its config"
            )


def _check_shapes(
    file: SafetensorsFile, layout: LoraLayout, rank: int, places: Mapping[_Place, str]
) -> None:
    sizes = {
        module.name: (product.inputs, module.outputs)
        for product in layout.products
        for module in product.modules
    }
    for (_, module, side), name in places.items():
        inputs, outputs = sizes[module]
        expected = (rank, inputs) if side == _SIDES[0] else (outputs, rank)
        stored = file.tensors[name]
        if stored.shape != expected:
            raise ConfigError(
                f"{file.path}: {name} has shape {list(stored.shape)}, but this model and r "
                f"{rank} need {list(expected)}; the adapter was made for another base model"
            )
        if stored.dtype not in BYTES_PER_VALUE:
            raise ConfigError(
                f"{file.path}: {name} is stored as {stored.dtype}; expected "
                f"{', '.join(BYTES_PER_VALUE)}"
            )


def _read(file: SafetensorsFile, name: str) -> FloatArray:
    stored = file.tensors[name]
    values = np.empty(stored.shape, np.float32)
    decode_floats(file.raw(name), cast("FloatType", stored.dtype), values.reshape(-1))
    if not np.isfinite(values).all():
        raise ConfigError(f"{file.path}: {name} holds values that are not finite numbers")
    return values


def _digest(config: AdapterConfig, file: SafetensorsFile, places: Mapping[_Place, str]) -> str:
    digest = hashlib.sha256(f"lora rank {config.rank} scale {config.scale!r}\n".encode())
    for place in sorted(places):
        name = places[place]
        stored = file.tensors[name]
        digest.update(f"{place!r} {stored.dtype} {stored.shape!r}\n".encode())
        digest.update(file.raw(name).data)
    return digest.hexdigest()


def _listed(names: Iterable[str]) -> str:
    shown = list(names)
    more = f" and {len(shown) - _NAMED} more" if len(shown) > _NAMED else ""
    return ", ".join(shown[:_NAMED]) + more
