"""A guarded tier behind host memory, as the offload thread uses it.

Lends it host slots, and takes them back only when the tier is done with them.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final

from pegainfer_core.kv import TierRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pegainfer_core.kv import PageKey
    from pegainfer_core.offload.guard import GuardedTier
    from pegainfer_core.offload.host_pool import HostPool, HostSlot
    from pegainfer_core.offload.rate_meter import RateMeter
    from pegainfer_core.offload.sealer import Sealer
    from pegainfer_core.offload.tier_call import TierCall

_LOOKUP_S: Final = 0.25
"""A request waits for the answer, so it must come soon."""

_RECORDS_A_CALL: Final = 32
_LENT_SHARE: Final = 4
_LENT_BYTES: Final = 256 << 20
"""A tier is given no more to write at a time than one in so many host slots, and so many bytes:
each call has a deadline, and waits behind those before it. The rest waits in host memory."""


class LowerTier:
    """Saves and loads through host slots.

    Args:
        guard: The tier.
        pool: Of the slots.
        meter: Bytes a second that its loads bring.
        sealer: Seals what is to be saved.
        post: Runs something on the offload thread.

    Attributes:
        name: The tier's.
        guard: The tier.
        num_dropped: Records not given to it: too many waited, or they left host memory meanwhile.
        query_pages: Pages it was asked for.
        hit_pages: Pages it gave.
    """

    def __init__(
        self,
        guard: GuardedTier,
        pool: HostPool,
        meter: RateMeter,
        sealer: Sealer,
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        self.name = guard.name
        self.guard = guard
        self.num_dropped = 0
        self.query_pages = 0
        self.hit_pages = 0
        self._pool = pool
        self._meter = meter
        self._sealer = sealer
        self._post = post
        self._num_lent = self._num_unsealed = 0
        self._backlog: deque[PageKey] = deque()
        self._free_s = 0.0

    @property
    def num_lent(self) -> int:
        """Host slots that it may be reading or writing."""
        return self._num_lent

    @property
    def is_saving(self) -> bool:
        """Whether records are still to be given to it."""
        return bool(self._backlog) or self._num_unsealed > 0

    def contains(self, keys: Sequence[PageKey], answer: Callable[[list[bool]], None]) -> None:
        """Ask which keys it holds; the answer comes on the offload thread."""
        self.query_pages += len(keys)
        call = self.guard.contains(keys, _LOOKUP_S)
        call.outcome.add_done_callback(lambda done: self._post(lambda: answer(done.result())))

    def save(self, keys: Iterable[PageKey]) -> None:
        """Give it records that host memory holds, as it takes them."""
        self._backlog.extend(keys)
        while len(self._backlog) > self._pool.num_slots:
            self._backlog.popleft()
            self.num_dropped += 1
        self._save_on()

    def _save_on(self) -> None:
        most = min(self._pool.num_slots // _LENT_SHARE, _LENT_BYTES // self._pool.record_bytes)
        while self._backlog and (room := max(most, 1) - self._num_lent) > 0:
            count = min(room, len(self._backlog), _RECORDS_A_CALL)
            keys = [self._backlog.popleft() for _ in range(count)]
            slots = [slot for slot in self._pool.lease_held(keys) if slot is not None]
            self.num_dropped += count - len(slots)
            if slots:
                self._seal_and_save(slots)

    def _seal_and_save(self, slots: list[HostSlot]) -> None:
        self._num_lent += len(slots)
        self._num_unsealed += len(slots)

        def save() -> None:
            self._num_unsealed -= len(slots)
            self._take_back_from(self.guard.save(records_of(slots)), slots)

        self._sealer.seal(slots, lambda: self._post(save))

    def load(
        self, slots: Sequence[HostSlot], loaded: Callable[[list[bool]], None]
    ) -> TierCall[list[bool]]:
        """Fill reserved slots; which of them are proven comes on the offload thread.

        The slots' pins are the caller's, unless it is told False: then they are given up here, as
        soon as the tier is done with them.
        """
        begun_s = time.monotonic()
        call = self.guard.load(records_of(slots))

        def finish() -> None:
            found = call.outcome.result()
            self._measure(slots, found, begun_s, timed_out=call.timed_out)
            lost = [slot for slot, held in zip(slots, found, strict=True) if not held]
            if lost:
                self._num_lent += len(lost)
                self._take_back_from(call, lost)
            loaded(found)

        call.outcome.add_done_callback(lambda done: self._post(finish))
        return call

    def _take_back_from(self, call: TierCall[list[bool]], slots: list[HostSlot]) -> None:
        def take_back() -> None:
            self._num_lent -= len(slots)
            self._pool.unpin(slots)
            self._save_on()

        call.settled.add_done_callback(lambda done: self._post(take_back))

    def _measure(
        self, slots: Sequence[HostSlot], found: list[bool], begun_s: float, *, timed_out: bool
    ) -> None:
        """Calls overlap: each counts from the end of the one before it."""
        now_s = time.monotonic()
        num_found = sum(found)
        self.hit_pages += num_found
        if num_found or timed_out:
            # One that never came would have taken longer still.
            count = num_found or len(slots)
            self._meter.add(count * self._pool.record_bytes, now_s - max(begun_s, self._free_s))
            self._free_s = now_s


def records_of(slots: Sequence[HostSlot]) -> list[TierRecord]:
    """Slots as tiers see them."""
    return [TierRecord(slot.key, slot.buffer) for slot in slots if slot.key is not None]
