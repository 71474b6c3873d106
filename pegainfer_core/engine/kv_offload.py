"""What a scheduler asks of KV offload, and the answer where there is none.

It stands before the KV manager where pages are published and given back, because pages that are
being copied must outlive their sequences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pegainfer_core.contract import KvOffloadMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pegainfer_core.engine.sequence import Sequence
    from pegainfer_core.engine.step import StepPlan
    from pegainfer_core.kv import KvManager


class KvOffload(Protocol):
    """Belongs to the engine's thread. No method but `rest`, `reclaim` and `close` ever waits."""

    @property
    def busy(self) -> bool:
        """Whether copies hold pages or sequences, so that `commit` must be called again."""
        ...

    def begin(self, started: list[Sequence]) -> list[Sequence]:
        """Look for more of the prefixes of sequences that were just admitted.

        Returns:
            Those that can be computed at once; the others are `restoring` until a later `commit`.
        """
        ...

    def commit(self, sequences: Iterable[Sequence]) -> None:
        """Take over what copies have brought, publish full pages, and save those that are new."""
        ...

    def release(self, sequence: Sequence) -> None:
        """Publish and save a sequence's last pages, then take them all from it."""
        ...

    def reclaim(self) -> bool:
        """Wait for pages that only copies use; False when there are none."""
        ...

    def rest(self) -> None:
        """Wait a moment for a copy to end, when nothing else is left to do."""
        ...

    def watch(
        self, observe: Callable[[StepPlan, float], None]
    ) -> Callable[[StepPlan, float], None]:
        """An observer of steps that tells another one too."""
        ...

    def drop(self) -> None:
        """Drop the pages in host memory."""
        ...

    def metrics(self) -> KvOffloadMetrics:
        """Gauges of now and counters since start."""
        ...

    def close(self) -> None:
        """Let what is being saved reach its tier, and end all threads."""
        ...


class NoOffload:
    """Implements `KvOffload` by the KV manager alone.

    Args:
        kv: The pages.
    """

    busy = False

    def __init__(self, kv: KvManager) -> None:
        self._kv = kv

    def begin(self, started: list[Sequence]) -> list[Sequence]:
        """All can be computed at once."""
        return started

    def commit(self, sequences: Iterable[Sequence]) -> None:
        """Publish full pages."""
        self._kv.commit(sequences)

    def release(self, sequence: Sequence) -> None:
        """Publish a sequence's last pages, then take them all from it."""
        self._kv.commit((sequence,))
        self._kv.release(sequence)

    def reclaim(self) -> bool:
        """No copy uses pages."""
        return False

    def rest(self) -> None:
        """There is nothing to wait for."""

    def watch(
        self, observe: Callable[[StepPlan, float], None]
    ) -> Callable[[StepPlan, float], None]:
        """The observer itself."""
        return observe

    def drop(self) -> None:
        """There are none in host memory."""

    def metrics(self) -> KvOffloadMetrics:
        """Nothing happens."""
        return KvOffloadMetrics()

    def close(self) -> None:
        """Nothing is open."""
