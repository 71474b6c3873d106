"""The core's options about adapters, checked, and what they make of a plan. Light."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pegainfer_core.weights import ConfigError

if TYPE_CHECKING:
    from pegainfer_core.backend import BackendName, DType
    from pegainfer_core.contract import CoreOptions, ServePlan
    from pegainfer_core.lora.layout import LoraLayout

_NUMPY_VALUE_BYTES = 4
_MAX_NAME = 256
_PARTING = frozenset(":\\")


def num_lora_slots(options: CoreOptions) -> int:
    """Adapters that can be loaded at once; 0 switches LoRA off.

    `--lora` without `--max-loras` makes room for just what it names.
    """
    return options.max_loras or len(options.lora)


def startup_adapters(options: CoreOptions) -> dict[str, str]:
    """Folders by name, of the adapters to load at start.

    Raises:
        ConfigError: A `--lora` is not NAME=PATH, names are given twice, or there are too many.
    """
    found: dict[str, str] = {}
    for word in options.lora:
        name, equals, folder = word.partition("=")
        if not equals or not folder:
            raise ConfigError(f"--lora {word}: expected NAME=PATH, the folder of an adapter")
        check_adapter_name(name, "--lora")
        if name in found:
            raise ConfigError(f"--lora {word}: the name {name!r} is given twice")
        found[name] = folder
    slots = num_lora_slots(options)
    if len(found) > slots:
        raise ConfigError(
            f"--lora names {len(found)} adapters, but --max-loras is {slots}; raise it"
        )
    return found


def check_adapter_name(name: str, where: str) -> None:
    """Refuse names that no request could send, or that read as something else.

    A colon parts the model's name from the adapter's in `MODEL:ADAPTER`, and clients put names into
    paths, of URLs and of their own files.

    Raises:
        ConfigError: The name cannot be used.
    """
    plain = name.isprintable() and name == name.strip() and not set(name) & _PARTING
    parts = name.split("/")
    if len(name) > _MAX_NAME or not plain or any(part in ("", ".", "..") for part in parts):
        raise ConfigError(
            f"{where}: {name[:80]!r} is no name for an adapter; expected 1 to {_MAX_NAME} "
            "printable characters without ':' and '\\', without spaces around them, and with "
            "slashes only between words"
        )


def adapter_folder(path: str) -> Path:
    """The folder that a path names, from the root.

    Raises:
        ConfigError: It names none.
    """
    if not path.strip() or "\0" in path:
        raise ConfigError(f"lora_path is {path[:80]!r}; give the folder of a PEFT adapter")
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError as error:
        raise ConfigError(f"lora_path is {path[:80]!r}: there is no such user") from error


def with_lora(
    plan: ServePlan, options: CoreOptions, layout: LoraLayout, backend: BackendName, dtype: DType
) -> ServePlan:
    """The plan with what the options ask for: unchanged if they ask for no adapters.

    Args:
        plan: Of the base model.
        options: The core's.
        layout: Where the family takes adapters.
        backend: Where it runs.
        dtype: Type of the weights as far as the config tells.

    Raises:
        ConfigError: An option makes no sense.
    """
    slots = num_lora_slots(options)
    startup_adapters(options)
    if not slots:
        return plan
    itemsize = _NUMPY_VALUE_BYTES if backend == "numpy" else dtype.itemsize
    slot_bytes = layout.slot_bytes(options.max_lora_rank, itemsize)
    note = (
        f"LoRA: {slots} slots of {slot_bytes / 2**20:.1f} MiB each, for adapters up to rank "
        f"{options.max_lora_rank}; --max-loras and --max-lora-rank change that"
    )
    return msgspec.structs.replace(
        plan,
        capabilities=msgspec.structs.replace(plan.capabilities, lora=True),
        notes=[*plan.notes, note],
    )
