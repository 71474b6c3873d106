"""Which recurrent states a step restores from the prefix cache, and which it saves there.

A state is as large as the KV of some hundred tokens, so few are kept: where a prompt may be asked
again or continued, where prompts part, and now and then along long ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pegainfer_core.engine import StateRestore, StateSave, StepPlan

if TYPE_CHECKING:
    from pegainfer_core.engine import Row, Sequence
    from pegainfer_core.kv import KvManager

LONG_PROMPT_TOKENS: Final = 2048
"""Distance of the states kept along long prompts, for others that leave them somewhere between."""


class SnapshotPlanner:
    """Completes plans of steps with states to restore and to save.

    Args:
        kv: Owns the slots of snapshots, in one group with a border at every page.
        first_slot: Of the snapshots, in the states' memory.
    """

    def __init__(self, kv: KvManager, first_slot: int) -> None:
        self._groups, self._page_tokens = kv.snapshots, kv.page_tokens
        self._first_slot = first_slot

    def complete(self, rows: list[Row], num_decode: int) -> StepPlan:
        """A plan of these rows, and of the states they start from or leave in the cache."""
        if not self._groups:
            return StepPlan(rows, num_decode)
        restores, saves = [], []
        for index, row in enumerate(rows):
            for slot in self._groups.sources(row.sequence):
                restores.append(StateRestore(self._first_slot + slot, row.sequence.slot))
            decodes = index < num_decode
            for border in self._borders(row, decodes):
                taken = self._groups.take(row.sequence, border, passing=decodes)
                saves += [
                    StateSave(index, border - row.start, self._first_slot + slot) for slot in taken
                ]
        return StepPlan(rows, num_decode, tuple(restores), tuple(saves))

    def launched(self, plan: StepPlan) -> None:
        """Let go of what a launched step restores: later ones may write there."""
        if plan.restores:
            for row in plan.rows:
                self._groups.restored(row.sequence)

    def _borders(self, row: Row, decodes: bool) -> list[int]:
        """Where in a row's tokens to save its state, as numbers of tokens from its first."""
        page, stop = self._page_tokens, row.start + row.num_tokens
        if decodes:
            # Which of them will be the answer's last border is not known before its end.
            return [stop] if stop % page == 0 else []
        first_mark = row.start // LONG_PROMPT_TOKENS + 1
        marks = range(first_mark * LONG_PROMPT_TOKENS, stop + 1, LONG_PROMPT_TOKENS)
        wanted = {*marks, *self._ends(row.sequence)}
        return sorted(border for border in wanted if row.start < border <= stop)

    def _ends(self, sequence: Sequence) -> tuple[int, int]:
        """The last border behind which the same prompt has a token left, and the known path's."""
        page = self._page_tokens
        last = (len(sequence.token_ids) - 1) // page * page
        return last, self._groups.known_tokens(sequence)
