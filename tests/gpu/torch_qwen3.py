"""transformers' Qwen3 around tensors that are already on the device."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import transformers
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from pegainfer_core.backend import DType
from pegainfer_core.backend.cuda.arrays import address
from tests.hf.transformers_run import last_logits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pegainfer_core.backend import Tensor


class TorchQwen3:
    """A causal language model with given parameters.

    Args:
        config: config.json.
        parameters: By the names of a checkpoint; used as they are, not copied.
    """

    def __init__(
        self, config: Mapping[str, object], parameters: Mapping[str, torch.Tensor]
    ) -> None:
        settings = transformers.Qwen3Config.from_dict(dict(config))
        first = next(iter(parameters.values()))
        with torch.device("meta"):
            model = transformers.Qwen3ForCausalLM(settings)
        held = dict(parameters)
        if settings.tie_word_embeddings:
            held["lm_head.weight"] = held["model.embed_tokens.weight"]
        model.load_state_dict(held, strict=True, assign=True)
        # Its frequencies are no parameters, so they have stayed on the meta device.
        model.model.rotary_emb = Qwen3RotaryEmbedding(config=settings).to(first.device)
        self._model = model.eval()

    def last_logits(self, sequences: list[list[int]], count: int) -> torch.Tensor:
        """As `transformers_run.last_logits`."""
        return last_logits(self._model, sequences, count)


def as_torch(tensor: Tensor) -> torch.Tensor:
    """The same memory, seen by torch. Whoever wrote it must have synchronised."""
    wide = tensor.dtype is DType.FLOAT32
    view: torch.Tensor = torch.as_tensor(
        _Interface(tensor, "<f4" if wide else "<i2"), device="cuda"
    )
    return view if wide else view.view(torch.bfloat16)


class _Interface:
    """What torch asks for; it keeps the tensor for as long as the view lives."""

    def __init__(self, tensor: Tensor, kind: str) -> None:
        assert math.prod(tensor.shape) > 0
        self._tensor = tensor
        self.__cuda_array_interface__ = {
            "shape": tensor.shape,
            "typestr": kind,
            "data": (address(tensor), False),
            "strides": None,
            "version": 3,
        }
