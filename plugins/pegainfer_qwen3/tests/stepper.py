"""Drives a loaded Qwen3 by hand, with no scheduler: tests say what is computed in which step."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pegainfer_qwen3.config import plan_qwen3
from pegainfer_qwen3.engine import load_model

from pegainfer_core.backend import Tensor
from pegainfer_core.engine import DecoderRunner
from tests.stepper import GREEDY, DecoderStepper

if TYPE_CHECKING:
    from pegainfer_core.contract import ServePlan

__all__ = ["GREEDY", "Stepper", "launch_context"]


class Stepper(DecoderStepper):
    family = "qwen3"

    def make_plan(self) -> ServePlan:
        return plan_qwen3(self.context)

    def load(self) -> None:
        loaded = load_model(self.context, self.plan, self.backend)
        self.model, self.weights, self.kv, sampler, self.adapters = loaded
        self.runner = DecoderRunner(self.model, self.backend, self.kv, sampler, self.plan)

    def weight_tensors(self) -> list[Tensor]:
        """Every parameter, once."""
        weights = self.weights
        tensors = {id(weights.embedding): weights.embedding, id(weights.head): weights.head}
        parts = [
            weights,
            *(part for layer in weights.layers for part in (layer.attention, layer.mlp)),
        ]
        for part in parts:
            for name in part.__dataclass_fields__:
                value = getattr(part, name)
                if isinstance(value, Tensor):
                    tensors[id(value)] = value
        return list(tensors.values())

    def weights_digest(self) -> str:
        """SHA-256 of every parameter."""
        digest = hashlib.sha256()
        for tensor in self.weight_tensors():
            digest.update(self.backend.to_host(tensor, tensor.shape[0]).tobytes())
        return digest.hexdigest()


launch_context = Stepper.launch_context
