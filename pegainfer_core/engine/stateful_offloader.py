"""KV offload for models whose rows carry a state: prefixes come back whole, or not at all.

A prefix is worth nothing where there is no snapshot of the state behind it. So what is looked for
is the longest one that ends in a snapshot; pages, snapshot and position are taken over together
once everything has landed, and given back together if anything has not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pegainfer_core.engine.offloader import Offloader
from pegainfer_core.engine.way_back import WayBack
from pegainfer_core.offload import HOST, Restore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pegainfer_core.backend import PageMover
    from pegainfer_core.contract import KvOffloadMetrics
    from pegainfer_core.engine.sequence import Sequence
    from pegainfer_core.engine.snapshot_lane import SnapshotLane
    from pegainfer_core.kv import BlockChain, KvManager
    from pegainfer_core.offload import HostPool, HostSlot, OffloadThread, PageKeys


class StatefulOffloader(Offloader):
    """Implements `KvOffload`.

    Args:
        kv: Pages and snapshots on the device.
        pool: The pages in host memory.
        thread: Of the pages.
        mover: Of the pages.
        identity: Digest of all that shapes pages and states beside their tokens.
        lane: Of the snapshots; closed with this, before `thread`.
        close: What else ends with this.
    """

    def __init__(
        self,
        kv: KvManager,
        pool: HostPool,
        thread: OffloadThread,
        mover: PageMover,
        identity: str,
        lane: SnapshotLane,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(kv, pool, thread, mover, identity, close)
        self._lane = lane
        self._ways: dict[int, WayBack] = {}
        self._by_restore: dict[Restore | None, WayBack] = {}
        """Restores of which nothing was heard since they had room or were searched for."""

    @property
    def busy(self) -> bool:
        """Whether copies hold pages or sequences."""
        return super().busy or bool(self._ways) or bool(self._by_restore)

    def commit(self, sequences: Iterable[Sequence]) -> None:
        """Take news over, publish and save; see `KvOffload`."""
        lane = self._lane
        for asker, held in lane.answers():
            if isinstance(asker, WayBack) and not asker.cancelled:
                self._decide(asker, held)
        for restore in lane.news():
            way = self._by_restore.get(restore)
            if way is not None and restore.finished:
                del self._by_restore[restore]
                self._settle(way)
            elif way is not None and not restore.page_ids and not restore.cancelled:
                lane.go_on(restore, way.slots[0])
        if lane.failed and (self._ways or self._by_restore):
            self._do_without_lane()
        super().commit(sequences)

    def release(self, sequence: Sequence) -> None:
        """Publish, save and take back; see `KvOffload`."""
        way = self._ways.pop(sequence.request_id, None)
        if way is not None:
            way.cancelled = True
            sequence.restoring = False
            for restore, thread in ((way.pages, self._thread), (way.state, self._lane.thread)):
                if restore is not None:
                    restore.cancelled = True
                    thread.cancel(restore)
        super().release(sequence)

    def drop(self) -> None:
        """Drop what is in host memory."""
        super().drop()
        self._lane.pool.clear()

    def metrics(self) -> KvOffloadMetrics:
        """The host tier's bytes are those of both kinds of records."""
        metrics = super().metrics()
        host, pool, thread = metrics.tiers[0], self._lane.pool, self._lane.thread
        host = msgspec.structs.replace(
            host,
            num_records=host.num_records + len(pool),
            used_bytes=host.used_bytes + len(pool) * pool.record_bytes,
            capacity_bytes=(host.capacity_bytes or 0) + pool.num_slots * pool.record_bytes,
            saved_bytes=host.saved_bytes + thread.saves.num_bytes,
            save_s=host.save_s + thread.saves.seconds,
            loaded_bytes=host.loaded_bytes + thread.loads.num_bytes,
            load_s=host.load_s + thread.loads.seconds,
            num_unsaved=host.num_unsaved + thread.saver.num_unsaved + self._lane.num_unsaved,
            num_evicted=host.num_evicted + pool.num_evicted,
            num_failures=host.num_failures + thread.saves.num_failed + thread.loads.num_failed,
        )
        return msgspec.structs.replace(metrics, tiers=[host, *metrics.tiers[1:]])

    def close(self) -> None:
        """End both threads; the tiers go with the pages'."""
        self._lane.close()
        super().close()

    @property
    def _num_restoring(self) -> int:
        return len(self._ways)

    def _look(self, sequence: Sequence, chain: BlockChain, keys: PageKeys) -> None:
        """Look in host memory; if that has not all there could be, ask the tiers behind it."""
        first, lane = len(chain.blocks), self._lane
        limit = (len(sequence.token_ids) - 1) // self._kv.page_tokens
        if first:
            # Its copy must not grow old because the device has it.
            lane.pool.touch(lane.keys(keys, first - 1, first)[0])
        if first >= limit or lane.failed:
            return
        self._counts.query_pages += limit - first
        way = WayBack(sequence, keys, first, max(chain.num_known, first))
        slots = self._lease(sequence, chain, keys, way.known, limit)
        way.border = lane.held_border(keys, first, way.known + len(slots))
        if way.border < limit and self._thread.tiers:
            self._pool.unpin(slots)
            chain.extend(sequence.token_ids, limit)
            self._wait_for(way)
            lane.ask(way, lane.keys(keys, first, limit))
            return
        num_pages = max(way.border - way.known, 0)
        self._pool.unpin(slots[num_pages:])
        if way.border and self._pays(num_pages, way.border - first):
            self._wait_for(way)
            self._start_from_host(way, slots[:num_pages])
            return
        self._counts.num_skipped += way.border > 0
        self._pool.unpin(slots[:num_pages])

    def _decide(self, way: WayBack, held: list[bool]) -> None:
        """The tiers have said which snapshots they hold: the pages before the last are next."""
        keys = self._lane.keys(way.keys, way.first, way.first + len(held))
        way.borders = [
            border
            for border, (key, is_held) in enumerate(zip(keys, held, strict=True), way.first + 1)
            if is_held or self._lane.pool.holds(key)
        ]
        last = way.borders[-1] if way.borders else 0
        if last <= way.known:
            self._do_without_pages(way)
            return
        names, parent = way.keys.of(way.known, last)
        slots = self._pool.lease_held(names)
        if None in slots:
            self._thread.search(self._note_pages(way, Restore(names, parent, slots)))
        else:
            way.border = last
            self._start_from_host(way, [slot for slot in slots if slot is not None])

    def _go_on(self, restore: Restore) -> None:
        """The pages up to some border were found, perhaps not to the last."""
        way = self._by_restore[restore]
        way.border = way.last_border(way.known + restore.limit)
        if way.border > way.known and self._reserve(way):
            self._give_pages(restore, way.sequence, way.border - way.known)
            self._thread.go_on(restore)
            self._begin_state(way)
            return
        # No room was given for them to be copied to.
        restore.cancelled = True
        self._thread.cancel(restore)
        self._let_go(restore)
        del self._by_restore[restore]
        way.pages = None
        self._do_without_pages(way)

    def _end(self, restore: Restore) -> None:
        """The pages are there, or not."""
        way = self._by_restore.pop(restore)
        self._let_go(restore)
        if way.state is not None:
            self._settle(way)
            return
        self._counts.num_skipped += restore.skipped
        way.pages = None
        if not way.cancelled:
            self._do_without_pages(way)

    def _start_from_host(self, way: WayBack, slots: list[HostSlot]) -> None:
        """All pages that the device lacks are in host memory."""
        if not self._reserve(way):
            self._pool.unpin(slots)
            self._forgo(way)
            return
        if slots:
            names, parent = way.keys.of(way.known, way.border)
            pages = self._note_pages(way, Restore(names, parent, list(slots)))
            self._give_pages(pages, way.sequence, len(slots))
            self._thread.begin(pages)
        self._begin_state(way)

    def _do_without_pages(self, way: WayBack) -> None:
        """No pages come back: what the device has may still end in a snapshot elsewhere."""
        way.border = way.last_border(way.known)
        if way.border and self._reserve(way):
            self._begin_state(way)
        else:
            self._forgo(way)

    def _reserve(self, way: WayBack) -> bool:
        """A slot for the snapshot, and a share in the pages that the device has."""
        if self._failed or self._lane.failed:
            return False
        way.slots = self._kv.snapshots.take_slots()
        shared_end = way.first + way.num_shared
        return bool(way.slots) and self._kv.share_known(way.sequence, shared_end)

    def _begin_state(self, way: WayBack) -> None:
        (key,) = self._lane.keys(way.keys, way.border - 1, way.border)
        way.state = self._lane.restore(key, way.slots[0])
        self._by_restore[way.state] = way

    def _settle(self, way: WayBack) -> None:
        """Take everything over, or give everything back, once no copy is under way."""
        if way.state is None or any(part in self._by_restore for part in (way.pages, way.state)):
            return
        if not way.has_landed:
            way.state.num_landed, way.state.failed = 0, not way.cancelled
        self._counts.take_with_state(way.state, way.pages, way.num_shared)
        if not way.has_landed:
            self._forgo(way)
            return
        sequence, slots, size = way.sequence, way.slots, self._kv.page_tokens
        way.slots = ()
        sequence.num_computed = sequence.num_completed = way.border * size
        self._kv.commit((sequence,))
        if not self._kv.snapshots.adopt(sequence, way.border * size, slots):
            sequence.num_computed = sequence.num_completed = way.first * size
            self._forgo(way)
            return
        sequence.num_restored = (way.border - way.first) * size
        sequence.num_saved_pages = way.border
        self._leave(way)

    def _forgo(self, way: WayBack) -> None:
        """Nothing is restored: the sequence goes on from where it was."""
        self._kv.snapshots.give_back(way.slots)
        way.slots = ()
        if not way.cancelled:
            self._kv.shrink(way.sequence, way.first * self._kv.page_tokens)
            self._leave(way)

    def _do_without_lane(self) -> None:
        """No snapshot comes back any more, and no copy of one is under way."""
        for way in {*self._ways.values(), *self._by_restore.values()}:
            if way.state is None:
                if way.pages is None:
                    self._forgo(way)
            elif self._by_restore.pop(way.state, None) is not None:
                way.state.num_landed = 0
                self._settle(way)

    def _wait_for(self, way: WayBack) -> None:
        way.sequence.restoring = True
        self._ways[way.sequence.request_id] = way

    def _leave(self, way: WayBack) -> None:
        way.sequence.restoring = False
        del self._ways[way.sequence.request_id]

    def _note_pages(self, way: WayBack, restore: Restore) -> Restore:
        way.pages = restore
        self._restores[restore] = way.sequence
        self._by_restore[restore] = way
        return restore

    def _pays(self, num_pages: int, num_blocks: int) -> bool:
        """Whether pages and snapshot come from host memory quicker than they are computed."""
        worth, states = self._thread.worth, self._lane.thread.worth
        restore_s = worth.restore_s({HOST: num_pages}) + states.restore_s({HOST: 1})
        return worth.is_quicker(restore_s, num_blocks * self._kv.page_tokens)
