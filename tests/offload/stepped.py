"""KV offload without its thread: tests say when copies land, and everything happens in order."""

from __future__ import annotations

import ctypes
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty

from pegainfer_core.backend import Fence, HostSlab
from pegainfer_core.backend.host_slab import map_slab
from pegainfer_core.offload import GuardedTier, HostPool, OffloadThread, RecordLayout
from pegainfer_core.offload.restore import Restore
from tests.scheduler.paged_model import PagedModel

News = int | Restore | None


class SteppedCopy:
    """A `CopyTicket` whose bytes move at the last moment, which is when the test says so."""

    def __init__(self, move: Callable[[], None]) -> None:
        self._move = move
        self.landed = False

    def land(self) -> None:
        assert not self.landed
        self._move()
        self.landed = True

    def done(self) -> bool:
        return self.landed


class PagedMover:
    """A `PageMover` of the paged model.

    A save reads its pages as late as it can, and a load spoils them at once and fills them as late
    as it can: pages that were given to others meanwhile end up with the wrong cells.

    Attributes:
        under_way: Copies that have not landed, by direction, oldest first.
        fails: Says of each copy whether it shall fail when it lands.
    """

    def __init__(self, model: PagedModel) -> None:
        self._model = model
        self._format = struct.Struct(f"{model.page_tokens}q")
        self.page_bytes = self._format.size
        self.under_way: dict[str, deque[SteppedCopy]] = {"save": deque(), "load": deque()}
        self.fails: Callable[[str], bool] = lambda direction: False
        self.num_saved = 0
        self.num_loaded = 0
        self.closed = False

    def open(self) -> None:
        """There is no device."""

    def slab(self, num_bytes: int) -> HostSlab:
        return map_slab(num_bytes)

    def fence(self) -> Fence | None:
        return None

    def save(self, page_ids: Sequence[int], addresses: Sequence[int]) -> SteppedCopy:
        before = [list(self._model.pages[page_id]) for page_id in page_ids]

        def move() -> None:
            for page_id, address, expected in zip(page_ids, addresses, before, strict=True):
                cells = self._model.pages[page_id]
                assert None not in cells, "a page was saved before it was full"
                assert cells == expected, "a page was written while it was saved"
                raw = self._format.pack(*cells)  # type: ignore[arg-type]
                _memory(address, len(raw))[:] = raw
                self.num_saved += 1

        return self._begin("save", move)

    def load(
        self, addresses: Sequence[int], page_ids: Sequence[int], after: Fence | None
    ) -> SteppedCopy:
        spoiled: list[int | None] = [None] * self._model.page_tokens
        for page_id in page_ids:
            self._model.pages[page_id] = spoiled.copy()

        def move() -> None:
            for address, page_id in zip(addresses, page_ids, strict=True):
                assert self._model.pages[page_id] == spoiled, "a page was written while loaded"
                raw = bytes(_memory(address, self.page_bytes))
                self._model.pages[page_id] = list(self._format.unpack(raw))
                self.num_loaded += 1

        return self._begin("load", move)

    def land_one(self, direction: str) -> bool:
        """Let the oldest copy of a direction land; False when there is none."""
        copies = self.under_way[direction]
        if not copies:
            return False
        copies.popleft().land()
        return True

    def land_all(self) -> None:
        while self.land_one("save") or self.land_one("load"):
            pass

    def close(self) -> None:
        self.land_all()
        self.closed = True

    def _begin(self, direction: str, move: Callable[[], None]) -> SteppedCopy:
        if self.fails(direction):
            raise RuntimeError(f"the device refused a {direction}")
        copy = SteppedCopy(move)
        self.under_way[direction].append(copy)
        return copy


def _memory(address: int, num_bytes: int) -> memoryview:
    return memoryview((ctypes.c_char * num_bytes).from_address(address)).cast("B")


class _Inbox:
    """Of the engine's thread: whoever waits for news lets a copy land."""

    def __init__(self, pump: Callable[[], None]) -> None:
        self._news: deque[News] = deque()
        self._pump = pump

    def put(self, news: News) -> None:
        self._news.append(news)

    def empty(self) -> bool:
        return not self._news

    def get(self, timeout: float | None = None) -> News:
        if not self._news:
            self._pump()
        if not self._news:
            raise Empty
        return self._news.popleft()


class SteppedThread(OffloadThread):
    """Works when `turn` is called."""

    def __init__(
        self,
        pool: HostPool,
        mover: PagedMover,
        page_tokens: int,
        guards: Sequence[GuardedTier] = (),
    ) -> None:
        layout = RecordLayout(page_bytes=mover.page_bytes)
        super().__init__(pool, mover, layout, page_tokens, guards)
        self._paged = mover
        self.news = _Inbox(self._pump)  # type: ignore[assignment]
        self.saver._tell = self.news.put
        self._restorer._tell = self.news.put

    def turn(self) -> None:
        """Do all that can be done now; no copy lands."""
        while not self._jobs.empty():
            self._turn()
        self._turn()

    def close(self) -> None:
        self._close()
        while self._busy():
            self._paged.land_all()
            self.turn()
        self._end()

    def _pump(self) -> None:
        self.turn()
        landed = self._paged.land_one("save") or self._paged.land_one("load")
        if not landed and self.tiers:
            time.sleep(0.001)  # for the threads of guards, which are real
        self.turn()

    def _patience_s(self) -> float | None:
        return 0.0
