"""A stand-in for a model that carries a state from step to step, beside its KV pages.

The state of a slot is the cell of the last token that went through it, and how many went. It must
be that of the row's context whenever a row is computed: a slot that was not clean, a snapshot of
another prefix, one written too late or read too early all show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.scheduler.paged_model import PagedModel, cell_after

if TYPE_CHECKING:
    from pegainfer_core.engine import LaunchedStep, Row, StateSave, StepPlan

State = tuple[int, int]
"""Tokens behind it, and the last one's cell."""


class StatefulModel(PagedModel):
    """A `PagedModel` with recurrent states."""

    def __init__(
        self, page_tokens: int, max_prefill_tokens: int, num_pages: int, *, ahead: bool = False
    ) -> None:
        super().__init__(page_tokens, max_prefill_tokens, num_pages, ahead=ahead)
        self.states: dict[int, State] = {}
        self.num_restored = self.num_saved = 0

    def launch(self, plan: StepPlan) -> LaunchedStep:
        copies = {target: self.states[source] for source, target in plan.restores}
        assert len(copies) == len(plan.restores)
        self.states |= copies
        self.num_restored += len(copies)
        self.num_saved += len(plan.saves)
        for index, row in enumerate(plan.rows):
            saves = [save for save in plan.saves if save.row_index == index]
            self._advance(row, saves)
        assert [s.row_index for s in plan.saves] == sorted(s.row_index for s in plan.saves)
        step = super().launch(plan)
        for row in plan.rows:
            last = row.start + row.num_tokens - 1
            assert self.states[row.sequence.slot][1] == self._read(row.sequence, last)
        return step

    def _advance(self, row: Row, saves: list[StateSave]) -> None:
        sequence, count = row.sequence, row.num_tokens
        token_ids = list(sequence.token_ids)
        if sequence.num_unread:
            token_ids.append(self.newest[sequence.slot])
        position, cell = self.states[sequence.slot] if row.start else (0, 0)
        assert position == row.start, f"a state of {position} tokens for token {row.start}"
        assert [save.num_tokens for save in saves] == sorted({save.num_tokens for save in saves})
        assert all(0 < save.num_tokens <= count for save in saves)
        for position in range(row.start, row.start + count):
            cell = cell_after(cell, token_ids[position], position)
            for save in saves:
                if row.start + save.num_tokens == position + 1:
                    self.states[save.slot] = (position + 1, cell)
        self.states[sequence.slot] = (row.start + count, cell)
