"""Publishes sequences' full pages and has them saved; keeps those in place that copies use.

The engine's half of saving. Knows no tiers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pegainfer_core.engine.sequence import Sequence
    from pegainfer_core.kv import KvManager
    from pegainfer_core.offload import OffloadThread, PageHold, PageKeys, PageSaves

_BATCH_PAGES: Final = 64
_BATCH_STEPS: Final = 8
"""Waking the offload thread takes longer than what it is to do for a few pages."""


class SequenceSaver:
    """Saves each page once, in numbered batches that land in order.

    Pages of a sequence that is gone stay used until its last copy has landed. All of them, because
    the prefix cache wants a page given back before those it builds on.

    Args:
        kv: The pages.
        thread: Copies.
    """

    def __init__(self, kv: KvManager, thread: OffloadThread) -> None:
        self._kv = kv
        self._thread = thread
        self._left: dict[PageHold, list[int]] = {}
        self._unsent: list[PageSaves] = []
        self._num_unsent_pages = self._num_unsent_steps = 0
        self._num_batches = self._num_landed = 0
        self._failed = False

    @property
    def holds_pages(self) -> bool:
        """Whether copies use pages of sequences that are gone."""
        return bool(self._left)

    @property
    def num_held_pages(self) -> int:
        """How many."""
        return sum(len(page_ids) for page_ids in self._left.values())

    def publish(self, sequences: Iterable[Sequence]) -> None:
        """Publish full pages; have those saved that are new."""
        due = self._kv.commit(sequences)
        if self._failed:
            return
        saves, number, num_pages = self._unsent, self._num_batches + 1, 0
        for sequence in due:
            chain, hold = sequence.chain, sequence.hold
            if chain is None or hold is None:
                continue
            first = sequence.num_saved_pages
            sequence.num_saved_pages = end = len(chain.blocks)
            if first < end:
                saves.append((hold.keys, first, sequence.page_ids[first:end]))
                num_pages += end - first
                hold.last_batch = number
        if saves:
            self._num_unsent_pages += num_pages
            self._num_unsent_steps += 1
            if self._num_unsent_pages >= _BATCH_PAGES or self._num_unsent_steps >= _BATCH_STEPS:
                self.flush()

    def note_use(self, keys: PageKeys, num_pages: int) -> None:
        """The device holds the first pages of a prompt: their copies must not grow old for that."""
        self._unsent.append((keys, num_pages, []))

    def flush(self) -> None:
        """Send what is not sent yet."""
        saves, self._unsent = self._unsent, []
        self._num_unsent_pages = self._num_unsent_steps = 0
        if saves:
            self._num_batches += 1
            self._thread.save(self._num_batches, saves)

    def release(self, sequence: Sequence) -> None:
        """Publish and save its last pages, then take them all from it, or leave them to copies."""
        self.publish((sequence,))
        hold = sequence.hold
        if hold is not None and not hold.is_free(self._num_landed):
            self.flush()
            self._left[hold] = sequence.page_ids.copy()
            self._kv.pool.share(sequence.page_ids)
        self._kv.release(sequence)

    def land(self, num_batches: int) -> None:
        """So many batches have landed by now."""
        self._num_landed = num_batches
        self.free()

    def free(self) -> None:
        """Give pages back that copies are done with."""
        for hold in [hold for hold in self._left if hold.is_free(self._num_landed)]:
            self._kv.pool.release(reversed(self._left.pop(hold)))

    def give_up(self) -> None:
        """Save nothing more; no copy is under way."""
        self._failed = True
        self._unsent = []
        self.land(self._num_batches + 1)
