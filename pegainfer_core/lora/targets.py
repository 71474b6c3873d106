"""Which modules of which layers an adapter's config names, by PEFT's rules.

Tensors for anything else would be left out by PEFT and must not be applied here. Knows no tensor.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from pegainfer_core.weights import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


_ALL: Final = "all-linear"
_PLAIN: Final = re.compile(r"[\w.-]*")


class AdapterTargets(msgspec.Struct, frozen=True, kw_only=True):
    """What an adapter changes.

    Attributes:
        names: Ends of modules' names; None where a pattern stands in for them.
        excluded: Ends of names that it leaves alone.
        layers: The only layers it changes; None for all.
    """

    names: tuple[str, ...] | None
    excluded: tuple[str, ...]
    layers: frozenset[int] | None

    def left_out_by(self, layer: int, name: str) -> str | None:
        """The field of the config that leaves a module out, or None if it is changed.

        Args:
            layer: Its layer.
            name: Its full name, without what PEFT puts before it.
        """
        if any(is_end(end, name) for end in self.excluded):
            return "exclude_modules"
        if self.names is None or name in self.names:
            return None
        if not any(is_end(end, name) for end in self.names):
            return "target_modules"
        if self.layers is not None and layer not in self.layers:
            return "layers_to_transform"
        return None


def is_end(end: str, name: str) -> bool:
    """Whether a name is that, or ends in it at a dot."""
    return name == end or name.endswith(f".{end}")


def read_targets(config: Mapping[str, object], where: str) -> AdapterTargets:
    """What the config says of them.

    Patterns are not evaluated: they are whoever wrote the config's programs, and PEFT writes
    tensors for what they match and for nothing else.

    Raises:
        ConfigError: Values of other types, or together as PEFT refuses them.
    """
    names, pattern = _names(config, "target_modules", where), config.get("target_modules")
    if names is None and not isinstance(pattern, str):
        raise ConfigError(
            f"{where}: target_modules is missing; name the modules that the adapter changes"
        )
    if isinstance(pattern, str) and pattern != _ALL and _PLAIN.fullmatch(pattern):
        raise ConfigError(
            f"{where}: target_modules is {_short(pattern)}, which would be a pattern for whole "
            "names; give a list of names"
        )
    layers = _layers(config, where)
    if config.get("layers_pattern") and layers is None:
        raise ConfigError(
            f"{where}: layers_pattern is {_short(config['layers_pattern'])}, but there is no "
            "layers_to_transform; leave it out"
        )
    if names is None and layers is not None:
        raise ConfigError(
            f"{where}: layers_to_transform is {_short(config['layers_to_transform'])}, but "
            "target_modules is a pattern; give a list of names, or leave one of them out"
        )
    excluded = _names(config, "exclude_modules", where)
    return AdapterTargets(names=names, excluded=excluded or (), layers=layers)


def check_layers_pattern(config: Mapping[str, object], layers: str, where: str) -> None:
    """Refuse a pattern that may mean other layers than the model's.

    Args:
        config: Parsed.
        layers: Name of the list of layers, such as `model.layers`.
        where: For the error.

    Raises:
        ConfigError: It does not name that list.
    """
    value = config.get("layers_pattern")
    known = layers.rpartition(".")[2]
    given = value if isinstance(value, list) else [value]
    if value and not {known, layers} & {item for item in given if isinstance(item, str)}:
        raise ConfigError(
            f"{where}: layers_pattern is {_short(value)}, but this model's layers are in "
            f"{layers}; make it {known!r} or leave it out"
        )


def _names(config: Mapping[str, object], key: str, where: str) -> tuple[str, ...] | None:
    value = config.get(key)
    if value is None or isinstance(value, str):
        return None
    if not isinstance(value, list) or any(not isinstance(item, str) for item in value):
        raise ConfigError(f"{where}: {key} is {_short(value)}; expected a list of names")
    return tuple(value)


def _layers(config: Mapping[str, object], where: str) -> frozenset[int] | None:
    value = config.get("layers_to_transform")
    if value is None or value == []:
        return None
    given = value if isinstance(value, list) else [value]
    numbers = [item for item in given if isinstance(item, int) and not isinstance(item, bool)]
    if len(numbers) != len(given) or min(numbers) < 0:
        raise ConfigError(
            f"{where}: layers_to_transform is {_short(value)}; expected a layer or a list of them"
        )
    return frozenset(numbers)


def _short(value: object) -> str:
    return repr(value)[:100]
