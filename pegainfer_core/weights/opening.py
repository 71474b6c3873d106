"""Opens what a launch is to read its tensors from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pegainfer_core.weights.checkpoint import Checkpoint
from pegainfer_core.weights.decoder_names import HEAD
from pegainfer_core.weights.dummy import DummyCheckpoint

if TYPE_CHECKING:
    from pegainfer_core.contract import LaunchContext
    from pegainfer_core.weights.config import FloatType
    from pegainfer_core.weights.spec import TensorSpecs

__all__ = ["open_source", "text_tensor_name"]

_WRAPPER: Final = re.compile(r"^(?:model\.language_model\.|language_model\.model\.)")


def open_source(
    context: LaunchContext, specs: TensorSpecs, dtype: FloatType | None
) -> Checkpoint | DummyCheckpoint:
    """The checkpoint, or what `--load-format dummy` makes in its place; close it after reading.

    Args:
        context: Of the launch.
        specs: The tensors.
        dtype: Type of made-up values; None makes them bfloat16.

    Raises:
        ConfigError: The checkpoint is at fault.
    """
    if context.options.load_format == "dummy":
        return DummyCheckpoint(specs, seed=context.options.seed, dtype=dtype or "bfloat16")
    return Checkpoint(Path(context.model_dir))


def text_tensor_name(stored: str) -> str:
    """A checkpoint's name as a text-only one spells it: multimodal releases wrap the text model."""
    return HEAD if stored == f"language_model.{HEAD}" else _WRAPPER.sub("model.", stored)
