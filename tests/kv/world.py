"""Pages with content: a KV manager under every kind of use, held against what must be true.

Every page holds what was written to it, a digest of all tokens up to each cell. Whatever a sequence
reads must be what it would have computed itself, however its pages came about. The choices are
numbers, so that hypothesis and a plain random source can both make them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import xxhash

from pegainfer_core.kv import (
    BlockChain,
    BlockHasher,
    CborBlockHasher,
    KvEvent,
    KvEventLog,
    KvManager,
    SnapshotSpec,
)
from tests.kv.invariants import check, check_cells
from tests.kv.router import Router

if TYPE_CHECKING:
    from collections.abc import Callable

B = 4
EVERY = 2 * B
MAX_TOKENS = 7 * B
STALE = -1

HASHERS: tuple[Callable[[], BlockHasher], ...] = (
    BlockHasher,
    CborBlockHasher,
    lambda: BlockHasher(lambda data: b"same"),
    lambda: BlockHasher(lambda data: bytes([xxhash.xxh3_64_digest(data)[0] & 3])),
)


@dataclass(eq=False)
class Seq:
    """A request: what it knows, and what it wrote last into its own state."""

    token_ids: list[int]
    chain: BlockChain | None
    use_cache: bool
    identity: tuple[str, str]
    num_computed: int = 0
    num_completed: int = 0
    page_ids: list[int] = field(default_factory=list)
    num_reserved_pages: int = 0
    due_tokens: int = sys.maxsize
    stint: int = 0
    restoring: bool = False
    state: int = 0
    cells: list[int] = field(default_factory=list)

    def content(self, num_tokens: int) -> list[int]:
        """What the cells of its first tokens must hold."""
        while len(self.cells) < num_tokens:
            before = self.cells[-1] if self.cells else hash(self.identity)
            self.cells.append(hash((before, self.token_ids[len(self.cells)])))
        return self.cells[:num_tokens]

    def state_after(self, num_tokens: int) -> int:
        """What its recurrent state must be behind its first tokens."""
        return hash(("state", self.content(num_tokens)[-1])) if num_tokens else 0


@dataclass
class Flight:
    """A launched step of one sequence."""

    seq: Seq
    stint: int
    num_tokens: int


@dataclass
class Copy:
    """A copy under way: a save of pages as they were, or a restore into a sequence's pages."""

    page_ids: list[int]
    content: list[list[int]]
    seq: Seq | None = None
    stint: int = 0
    start: int = 0


class World:
    """One manager and all who use it.

    Args:
        num_pages: Usable pages.
        hasher: Which of `HASHERS`.
        snapshots: Whether there are two groups of snapshots beside the pages.
        stride: Blocks between the joints of trails; 0 leaves it, and trails go unused.
    """

    def __init__(self, num_pages: int, hasher: int, snapshots: bool, stride: int) -> None:
        self.router = Router()
        self.num_dropped = 0
        specs = (SnapshotSpec(3, EVERY), SnapshotSpec(4, EVERY)) if snapshots else ()
        self.kv = KvManager(
            num_pages + 1,
            B,
            hasher=HASHERS[hasher % len(HASHERS)](),
            snapshots=specs,
            events=(log := KvEventLog(self)),
        )
        self.log = log
        if stride:
            assert self.kv._cache is not None
            self.kv._cache._trails.stride_blocks = stride
        self.pages = [[STALE] * B for _ in range(num_pages + 1)]
        self.slots = [[STALE] * spec.num_slots for spec in specs]
        self.waiting: list[Seq] = []
        self.running: list[Seq] = []
        self.flights: list[Flight] = []
        self.copies: list[Copy] = []
        self.known: list[list[int]] = [[]]
        self.num_hit_tokens = 0

    def carry(self, events: list[KvEvent]) -> None:
        """Take a step's events."""
        self.router.take(events)

    def close(self) -> None:
        """Nothing to release."""

    # What can happen. Numbers choose; where there is nothing to choose from, nothing happens.

    def arrive(self, stem: int, length: int, identity: int, use_cache: bool) -> None:
        """A request whose prompt goes on from what another one knows."""
        everything = [*self.known, *(seq.token_ids for seq in self.running)]
        known = everything[stem % len(everything)]
        prompt = known[: len(known) - stem % 5]
        prompt = (prompt + [(stem + index) % 3 for index in range(length)])[: MAX_TOKENS - 1]
        names = (("", ""), ("salt", ""), ("", "salt"))[identity % 3]
        chain = self.kv.new_chain(cache_salt=names[0], adapter=names[1])
        if prompt:
            self.waiting.append(Seq(prompt, chain, use_cache, names))

    def serve(self, stem: int, length: int, identity: int) -> None:
        """A request arrives and, where there is room, is computed at once and goes."""
        self.arrive(stem, length, identity, True)
        if self.waiting:
            seq = self.waiting[-1]
            self.admit(-1, False, 0)
            while seq in self.running and seq.num_computed < len(seq.token_ids):
                before = seq.num_computed
                self.launch(self._ready().index(seq), MAX_TOKENS)
                if seq.num_computed == before:
                    return
            while self.flights:
                self.complete(0)

    def admit(self, pick: int, reserve_all: bool, room: int) -> None:
        """Try to start a waiting request."""
        if not self.waiting:
            return
        seq = self.waiting[pick % len(self.waiting)]
        reserve = MAX_TOKENS if reserve_all else len(seq.token_ids)
        available = self.kv.num_available
        if not self.kv.admit(
            seq, reserve_tokens=reserve, room_tokens=reserve + room, use_cache=seq.use_cache
        ):
            assert not seq.page_ids and self.kv.num_available == available
            return
        assert seq.num_computed < len(seq.token_ids)
        assert seq.use_cache or not seq.num_computed
        self.num_hit_tokens += seq.num_computed
        self.waiting.remove(seq)
        self.running.append(seq)
        check_cells(self, seq)
        self._restore_state(seq)

    def launch(self, pick: int, num_tokens: int) -> None:
        """Compute some tokens of a running request, if pages are left."""
        ready = self._ready()
        if not ready:
            return
        seq = ready[pick % len(ready)]
        start = seq.num_computed
        stop = min(start + num_tokens, len(seq.token_ids))
        border = self.kv.snapshots.border(start, stop)
        stop = border or stop
        if stop == start or not self._grow(seq, stop):
            return
        self.kv.snapshots.restored(seq)
        check_cells(self, seq)
        assert not self.slots or seq.state == seq.state_after(start)
        for index, cell in enumerate(seq.content(stop)[start:], start):
            self.pages[seq.page_ids[index // B]][index % B] = cell
        seq.state = seq.state_after(stop)
        if border:
            slots = self.kv.snapshots.take(seq, border, passing=num_tokens % 2 == 1)
            for group, slot in enumerate(slots):
                self.slots[group][slot] = seq.state
        seq.num_computed = stop
        self.flights.append(Flight(seq, seq.stint, stop - start))

    def complete(self, token: int) -> None:
        """Take over the oldest step's result; a request that computed all it knows goes on."""
        if not self.flights:
            return
        flight = self.flights.pop(0)
        seq = flight.seq
        if seq not in self.running or seq.stint != flight.stint:
            return
        seq.num_completed += flight.num_tokens
        self.kv.commit([seq])
        check_cells(self, seq)
        if seq.num_completed < len(seq.token_ids):
            return
        if len(seq.token_ids) < MAX_TOKENS - 1 and token % 4:
            seq.token_ids.append(token % 3)
        else:
            self.known = [*self.known[-7:], list(seq.token_ids)]
            self._leave(seq)

    def preempt(self, pick: int) -> None:
        """Take everything from a running request, which waits again."""
        if self.running:
            seq = self.running[pick % len(self.running)]
            self._leave(seq)
            self.waiting.append(seq)

    def abort(self, pick: int) -> None:
        """End a request wherever it is."""
        everyone = self.waiting + self.running
        if everyone:
            seq = everyone[pick % len(everyone)]
            if seq in self.running:
                self._leave(seq)
            else:
                self.waiting.remove(seq)

    def reset(self) -> None:
        """Drop what is cached."""
        self.kv.reset_prefix_cache()
        assert self.kv.pool.num_cached == 0

    def save(self, pick: int, first: int, count: int) -> None:
        """Begin to copy published pages of a request elsewhere."""
        holders = [seq for seq in self.running if seq.chain is not None and seq.chain.blocks]
        if holders:
            seq = holders[pick % len(holders)]
            assert seq.chain is not None
            num_published = len(seq.chain.blocks)
            first %= num_published
            page_ids = seq.page_ids[first : min(first + count, num_published)]
            self.kv.pool.share(page_ids)
            self.copies.append(Copy(page_ids, [list(self.pages[page]) for page in page_ids]))

    def restore(self, pick: int, count: int) -> None:
        """Begin to fill a request's next pages from elsewhere; it does not run meanwhile."""
        ready = [
            seq
            for seq in self.running
            if not (seq.restoring or seq.num_computed % B or self.slots)
            and seq.num_computed == seq.num_completed
        ]
        if not ready:
            return
        seq = ready[pick % len(ready)]
        first = seq.num_computed // B
        stop = min(first + count, (len(seq.token_ids) - 1) // B)
        if stop <= first or not self.kv.grow(seq, stop * B):
            return
        page_ids = seq.page_ids[first:stop]
        cells = seq.content(stop * B)
        content = [cells[block * B : (block + 1) * B] for block in range(first, stop)]
        self.kv.pool.share(page_ids)
        seq.restoring = True
        self.copies.append(Copy(page_ids, content, seq, seq.stint, first))

    def land(self, pick: int, num_failed: int) -> None:
        """A copy ends; of a restore, the last pages may not have arrived."""
        if not self.copies:
            return
        copy = self.copies.pop(pick % len(self.copies))
        seq, size = copy.seq, len(copy.page_ids)
        if seq is None:
            assert [self.pages[page] for page in copy.page_ids] == copy.content, "written over"
        else:
            num_landed = size - num_failed % (size + 1)
            for index, page in enumerate(copy.page_ids):
                landed = index < num_landed
                self.pages[page] = list(copy.content[index]) if landed else [STALE] * B
            if seq in self.running and seq.stint == copy.stint:
                self._take_over(seq, (copy.start + num_landed) * B)
        self.kv.pool.release(copy.page_ids)

    def end(self) -> None:
        """Everyone goes, every copy lands: nothing may be left in use."""
        while self.copies:
            self.land(0, 0)
        for seq in list(self.running):
            self._leave(seq)
        self.flights.clear()
        check(self)
        pool = self.kv.pool
        assert pool.num_used == 0 and self.kv.num_available == pool.num_total
        self.kv.reset_prefix_cache()
        assert pool.num_free == pool.num_total
        for snapshots in self.kv.snapshots.pools:
            assert snapshots.num_free == snapshots.num_total
        assert not self.router.tokens

    def _ready(self) -> list[Seq]:
        return [seq for seq in self.running if not seq.restoring]

    def _leave(self, seq: Seq) -> None:
        self.running.remove(seq)
        self.kv.release(seq)
        seq.stint += 1
        seq.restoring = False

    def _take_over(self, seq: Seq, num_tokens: int) -> None:
        seq.restoring = False
        self.kv.shrink(seq, num_tokens)
        if num_tokens > seq.num_computed:
            seq.num_computed = seq.num_completed = num_tokens
            self.kv.commit([seq])

    def _grow(self, seq: Seq, num_tokens: int) -> bool:
        within = num_tokens <= seq.num_reserved_pages * B
        grown = self.kv.grow(seq, num_tokens)
        assert grown or not within, "a promise was broken"
        return grown

    def _restore_state(self, seq: Seq) -> None:
        sources = self.kv.snapshots.sources(seq)
        if self.slots:
            assert bool(sources) == bool(seq.num_computed)
        seq.state = 0
        for group, slot in enumerate(sources):
            seq.state = self.slots[group][slot]
            assert seq.state == seq.state_after(seq.num_computed), "another prefix's state"
