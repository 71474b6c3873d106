"""The paged model with steps that fail on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pegainfer_core.contract import DeviceFault
from pegainfer_core.engine import LaunchedStep, RowResult, StepPlan
from tests.scheduler.paged_model import PagedModel

Where = Literal["launch", "results"]

_RUBBISH = -1


class FailingStep:
    """A step that was launched and did not complete."""

    def __init__(self, blocks: bool, error: Exception) -> None:
        self.blocks = blocks
        self._error = error

    def results(self) -> list[RowResult]:
        raise self._error


class FaultyModel(PagedModel):
    """Fails the steps that `fails` names, as they are launched or when their results are read.

    Attributes:
        failed: Requests of each failed step.
        lost: Whether its device is, once a step has failed.
    """

    fails: Callable[[int], Exception | None]
    where: Where
    failed: list[set[int]]
    lost: bool

    @classmethod
    def put_into(
        cls, model: PagedModel, where: Where, fails: Callable[[int], Exception | None]
    ) -> FaultyModel:
        """Turn a model into a faulty one.

        Args:
            model: Already in use by a scheduler.
            where: When a failure shows.
            fails: What the step of this number, from 1 on, fails with.
        """
        model.__class__ = cls
        assert isinstance(model, cls)
        model.fails, model.where, model.failed, model.lost = fails, where, [], False
        return model

    def raise_if_lost(self) -> None:
        if self.lost:
            raise DeviceFault("GPU 0 is gone")

    def launch(self, plan: StepPlan) -> LaunchedStep:
        error = self.fails(self.num_steps + 1)
        if error is None:
            return super().launch(plan)
        self.failed.append({row.sequence.request_id for row in plan.rows})
        if self.where == "launch":
            self.num_steps += 1
            raise error
        step = super().launch(plan)
        # Whatever it wrote, nobody may find it.
        for row in plan.rows:
            for position in range(row.start, row.start + row.num_tokens):
                self._write(row.sequence, position, _RUBBISH)
        return FailingStep(step.blocks, error)
