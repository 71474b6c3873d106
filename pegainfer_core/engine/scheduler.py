"""What the driver loop needs of a family's scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pegainfer_core.contract import EngineMetrics, GenerateRequest
    from pegainfer_core.engine.ledger import Ledger


class Scheduler(Protocol):
    """Owns a family's requests, state and model; lives on the engine thread only.

    The driver calls `submit` and `abort` between steps, then `step` while `has_work`. Everything
    clients hear goes through the ledger handed to these methods.
    """

    def submit(self, request: GenerateRequest, ledger: Ledger) -> None:
        """Queue a request the ledger has opened, or reject it through the ledger."""
        ...

    def abort(self, request_id: int, ledger: Ledger) -> None:
        """Release what an open request holds and end it with `ledger.abort`."""
        ...

    def has_work(self) -> bool:
        """Whether any request waits or runs."""
        ...

    def step(self, ledger: Ledger) -> None:
        """Launch a step, and take over results that are due.

        What a runner raises fails the requests of its step; an exception out of here is fatal for
        the engine.
        """
        ...

    def reset_prefix_cache(self) -> None:
        """Drop cached pages that no live request uses, on the device."""
        ...

    def metrics(self) -> EngineMetrics:
        """Gauges and counters; the driver adds the ledger's own counts of ended requests."""
        ...

    def close(self) -> None:
        """Release the model and its memory."""
        ...


@runtime_checkable
class OffloadingScheduler(Protocol):
    """What a scheduler has beside `Scheduler` if it also keeps pages in host memory."""

    def drop_offloaded(self) -> None:
        """Drop the pages in host memory, as far as nothing is being copied from them."""
        ...
