"""Saves sequences' full pages beside the steps, and brings prefixes back instead of computing them.

The engine's half of KV offload: it knows sequences and pages, and leaves copying and asking to the
offload thread.
"""

from __future__ import annotations

import logging
from queue import Empty
from typing import TYPE_CHECKING, Final

from pegainfer_core.engine.offload_counts import OffloadCounts
from pegainfer_core.engine.sequence_saver import SequenceSaver
from pegainfer_core.offload import HOST, PageHold, PageKeys, Restore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pegainfer_core.backend import PageMover
    from pegainfer_core.contract import KvOffloadMetrics
    from pegainfer_core.engine.sequence import Sequence
    from pegainfer_core.engine.step import StepPlan
    from pegainfer_core.kv import BlockChain, KvManager, PageKey
    from pegainfer_core.offload import HostPool, HostSlot, OffloadThread

logger = logging.getLogger(__name__)

_REST_S: Final = 2e-3
"""Commands wait so long for an engine that only waits for copies."""

_RECLAIM_S: Final = 0.1
_FIRST_LOOK_PAGES: Final = 8
_WIDER_LOOK: Final = 8


class Offloader:
    """Implements `KvOffload`.

    Args:
        kv: The pages on the device.
        pool: The pages in host memory.
        thread: Copies, and asks the tiers behind host memory; closed with this.
        mover: The backend's, for its fences.
        identity: Digest of all that shapes the pages beside their tokens.
        close: What else ends with this.
    """

    def __init__(
        self,
        kv: KvManager,
        pool: HostPool,
        thread: OffloadThread,
        mover: PageMover,
        identity: str,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._kv = kv
        self._pool = pool
        self._thread = thread
        self._mover = mover
        self._identity = identity
        self._close = close
        self._counts = OffloadCounts()
        self._restores: dict[Restore, Sequence] = {}
        self._by_request: dict[int, Restore] = {}
        self._written: dict[Restore, PageHold] = {}
        self._saver = SequenceSaver(kv, thread)
        self._failed = False

    @property
    def busy(self) -> bool:
        """Whether copies hold pages of sequences that are gone, or a restore is under way."""
        return self._saver.holds_pages or bool(self._restores)

    def begin(self, started: list[Sequence]) -> list[Sequence]:
        """Look for more of the prefixes; see `KvOffload`."""
        for sequence in started:
            chain = sequence.chain
            sequence.num_saved_pages = len(chain.blocks) if chain is not None else 0
            if chain is None or self._failed:
                continue
            keys = sequence.page_keys or PageKeys(self._identity, chain)
            sequence.page_keys, sequence.hold = keys, PageHold(keys)
            if chain.blocks:
                self._saver.note_use(keys, len(chain.blocks))
            if sequence.prompt_logprobs is None:
                self._look(sequence, chain, keys)
        return [sequence for sequence in started if not sequence.restoring]

    def commit(self, sequences: Iterable[Sequence]) -> None:
        """Take news over, publish and save; see `KvOffload`."""
        news = self._thread.news
        while not news.empty():
            self._take(news.get())
        self._saver.publish(sequences)

    def release(self, sequence: Sequence) -> None:
        """Publish, save and take back; pages stay used until their copies have landed."""
        restore = self._by_request.pop(sequence.request_id, None)
        if restore is not None:
            restore.cancelled = True
            sequence.restoring = False
            self._thread.cancel(restore)
        self._saver.release(sequence)

    def reclaim(self) -> bool:
        """Wait for pages that only copies use; see `KvOffload`."""
        num_used = self._kv.pool.num_used
        while self._saver.holds_pages:
            self._wait(_RECLAIM_S)
            if self._kv.pool.num_used < num_used:
                return True
        return False

    def rest(self) -> None:
        """Wait a moment for news."""
        if self.busy:
            self._wait(_REST_S)

    def watch(
        self, observe: Callable[[StepPlan, float], None]
    ) -> Callable[[StepPlan, float], None]:
        """Measure prefill on the way."""

        def watched(plan: StepPlan, duration_s: float) -> None:
            num_tokens = sum(row.num_tokens for row in plan.rows[plan.num_decode :])
            if num_tokens:
                self._thread.worth.prefill.add(num_tokens, duration_s)
            observe(plan, duration_s)

        return watched

    def drop(self) -> None:
        """Drop the pages in host memory.

        The tiers behind it keep theirs: they are asked by content, which is right for ever.
        """
        self._pool.clear()

    def metrics(self) -> KvOffloadMetrics:
        """Gauges of now and counters since start."""
        return self._counts.metrics(
            self._thread,
            self._pool,
            self._kv.page_tokens,
            num_restoring=self._num_restoring,
            num_held_pages=self._saver.num_held_pages,
        )

    @property
    def _num_restoring(self) -> int:
        return len(self._by_request)

    def close(self) -> None:
        """End the offload thread."""
        self._close()
        self._saver.flush()
        self._thread.close()

    def _look(self, sequence: Sequence, chain: BlockChain, keys: PageKeys) -> None:
        """Restore what lies behind the prefix on the device, if that is quicker."""
        first = len(chain.blocks)
        limit = (len(sequence.token_ids) - 1) // self._kv.page_tokens
        if first >= limit:
            return
        self._counts.query_pages += limit - first
        if self._thread.tiers:
            chain.extend(sequence.token_ids, limit)
            names, parent = keys.of(first, limit)
            slots = self._pool.lease_held(names)
            if None in slots:
                restore = Restore(names, parent, slots)
                self._admit(restore, sequence)
                self._thread.search(restore)
                return
            found = [slot for slot in slots if slot is not None]
        else:
            found = self._lease(sequence, chain, keys, first, limit)
        if found:
            self._restore_from_host(sequence, *keys.of(first, first + len(found)), found)

    def _lease(
        self, sequence: Sequence, chain: BlockChain, keys: PageKeys, first: int, limit: int
    ) -> list[HostSlot]:
        """What host memory holds in a row; a prompt that nobody has seen costs next to nothing."""
        slots: list[HostSlot] = []
        end = first
        width = _FIRST_LOOK_PAGES
        while end < limit and end == first + len(slots):
            begin, end = end, min(end + width, limit)
            chain.extend(sequence.token_ids, end)
            slots += self._pool.lease(keys.of(begin, end)[0])
            width *= _WIDER_LOOK
        return slots

    def _restore_from_host(
        self,
        sequence: Sequence,
        keys: list[PageKey],
        parent: PageKey | None,
        slots: list[HostSlot],
    ) -> None:
        if not self._thread.worth.pays({HOST: len(slots)}):
            self._counts.num_skipped += 1
            self._pool.unpin(slots)
            return
        restore = Restore(keys, parent, list(slots))
        self._admit(restore, sequence)
        self._give_pages(restore, sequence, restore.limit)
        self._thread.begin(restore)

    def _admit(self, restore: Restore, sequence: Sequence) -> None:
        sequence.restoring = True
        self._restores[restore] = sequence
        self._by_request[sequence.request_id] = restore

    def _give_pages(self, restore: Restore, sequence: Sequence, count: int) -> None:
        """All its known tokens were promised pages when it was admitted."""
        first = len(sequence.page_ids)
        self._kv.grow(sequence, (first + count) * self._kv.page_tokens)
        if sequence.hold is not None:
            sequence.hold.is_restored = True
            self._written[restore] = sequence.hold
        restore.fence = self._mover.fence()
        restore.page_ids = sequence.page_ids[first:]

    def _take(self, news: int | Restore | None) -> None:
        if news is None:
            self._give_up()
        elif not isinstance(news, Restore):
            self._saver.land(news)
        elif news in self._restores:
            if news.finished:
                self._end(news)
            elif not news.page_ids and not news.cancelled:
                self._go_on(news)

    def _go_on(self, restore: Restore) -> None:
        """Have what was found copied."""
        self._give_pages(restore, self._restores[restore], restore.limit)
        self._thread.go_on(restore)

    def _let_go(self, restore: Restore) -> Sequence:
        """No copy into its pages is under way any more."""
        hold = self._written.pop(restore, None)
        if hold is not None:
            hold.is_restored = False
            self._saver.free()
        return self._restores.pop(restore)

    def _end(self, restore: Restore) -> None:
        """Count, and let the sequence go on behind what has landed."""
        sequence = self._let_go(restore)
        self._counts.take(restore)
        if restore.cancelled:
            return
        del self._by_request[sequence.request_id]
        sequence.restoring = False
        first = len(sequence.page_ids) - len(restore.page_ids)
        end = first + restore.num_landed
        self._kv.shrink(sequence, end * self._kv.page_tokens)
        if restore.num_landed:
            sequence.num_computed = sequence.num_completed = end * self._kv.page_tokens
            sequence.num_restored = restore.num_landed * self._kv.page_tokens
            sequence.num_saved_pages = end
            self._kv.commit((sequence,))

    def _give_up(self) -> None:
        """The offload thread has failed, and no copy is under way any more."""
        self._failed = True
        for restore in list(self._restores):
            restore.num_landed, restore.failed = 0, True
            self._end(restore)
        self._saver.give_up()

    def _wait(self, timeout_s: float) -> None:
        try:
            self._take(self._thread.news.get(timeout=timeout_s))
        except Empty:
            return
