"""Back from a prepared launch to the words of a `pegainfer serve` command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pegainfer_core.plugin import PreparedLaunch


def serve_words(launch: PreparedLaunch) -> list[str]:
    """Model, family, and every option that is not at its default, on a free port."""
    context = launch.context
    words = [context.model_dir, "--family", context.family, "--port", "0"]
    words += _flags(msgspec.to_builtins(context.options))
    defaults = {
        field.name: field.default for field in msgspec.structs.fields(launch.family.options)
    }
    own = {k: v for k, v in context.family_options.items() if v != defaults.get(k)}
    return words + _flags(own)


def _flags(values: Mapping[str, object]) -> list[str]:
    words: list[str] = []
    for field, value in values.items():
        name = field.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        elif value is not None:
            # One word, or a value that begins with a dash would be taken for a flag.
            words.append(f"--{name}={value}")
    return words
