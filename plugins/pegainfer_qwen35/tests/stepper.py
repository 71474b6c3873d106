"""Drives a loaded Qwen3.5 by hand, with no scheduler: tests say what is computed in which step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_qwen35.config import plan_qwen35
from pegainfer_qwen35.engine import load_model

from pegainfer_core.engine import DecoderRunner
from tests.stepper import DecoderStepper

if TYPE_CHECKING:
    from pegainfer_qwen35.model import Qwen35Model

    from pegainfer_core.contract import ServePlan
    from pegainfer_core.engine import Sequence


class Stepper(DecoderStepper):
    family = "qwen35"
    model: Qwen35Model

    def make_plan(self) -> ServePlan:
        return plan_qwen35(self.context)

    def load(self) -> None:
        loaded = load_model(self.context, self.plan, self.backend)
        self.model, self.weights, self.kv = loaded.model, loaded.weights, loaded.kv
        self.num_snapshots, self.plan = loaded.num_snapshots, loaded.plan
        self.states = self.model.states
        self.runner = DecoderRunner(
            self.model, self.backend, self.kv, loaded.sampler, self.plan, self.states
        )

    def row_slot(self, sequence: Sequence) -> int:
        return sequence.slot


launch_context = Stepper.launch_context
