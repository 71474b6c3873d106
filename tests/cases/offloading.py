"""Engines with a host tier for the cases: every restore that can be is done, copies may be late."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence

import pytest

from pegainfer_core.backend import Fence
from pegainfer_core.backend.numpy.numpy_page_mover import DoneCopy, NumpyPageMover
from pegainfer_core.contract import KvTierMetrics
from pegainfer_core.offload import Worth
from pegainfer_core.testing.conformance.session import Session

TIMEOUT_S = 20.0


@pytest.fixture
def always_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tiny models computing may be quicker, by chance."""
    monkeypatch.setattr(Worth, "pays", lambda self, num_by_source: True)


@pytest.fixture
def late_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies read and write their pages a random time after they were begun."""
    rng = random.Random(8)
    save, load = NumpyPageMover.save, NumpyPageMover.load

    def late_save(
        self: NumpyPageMover, page_ids: Sequence[int], addresses: Sequence[int]
    ) -> DoneCopy:
        time.sleep(rng.choice([0, 0, 0.001, 0.004]))
        return save(self, page_ids, addresses)

    def late_load(
        self: NumpyPageMover, addresses: Sequence[int], page_ids: Sequence[int], after: Fence | None
    ) -> DoneCopy:
        time.sleep(rng.choice([0, 0.001, 0.004, 0.01]))
        return load(self, addresses, page_ids, after)

    monkeypatch.setattr(NumpyPageMover, "save", late_save)
    monkeypatch.setattr(NumpyPageMover, "load", late_load)


def wait_for_saves(session: Session, num_records: int) -> None:
    """Until host memory holds so many pages."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while session.handle.metrics().kv_offload.tiers[0].num_records < num_records:
        assert time.monotonic() < deadline_s, session.handle.metrics().kv_offload
        time.sleep(0.005)


def tiers_with(session: Session, hit_tokens: int) -> list[KvTierMetrics]:
    """The tiers, once the last of them has given so much; a snapshot may be 50 ms old."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while (tiers := session.handle.metrics().kv_offload.tiers)[-1].hit_tokens < hit_tokens:
        assert time.monotonic() < deadline_s, tiers
        time.sleep(0.005)
    return tiers


def offload_threads() -> list[str]:
    """Threads of KV offload in this process."""
    return [t.name for t in threading.enumerate() if t.name.startswith("pegainfer-offload")]
