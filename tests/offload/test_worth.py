"""Rates, and what is decided with them."""

from __future__ import annotations

import pytest

from pegainfer_core.offload import HOST, RecordLayout, Worth
from pegainfer_core.offload.copies import Copies
from pegainfer_core.offload.rate_meter import MAX_AGE_S, RateMeter

LAYOUT = RecordLayout(page_bytes=1 << 20)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_small_pieces_hardly_count_beside_large_ones() -> None:
    meter = RateMeter(window=100.0, clock=Clock())
    meter.add(1000, 1.0)
    for _ in range(5):
        meter.add(1, 0.05)
    assert meter.rate == pytest.approx(1000, rel=0.3)


def test_recent_work_counts_most() -> None:
    meter = RateMeter(window=100.0, clock=Clock())
    meter.add(1000, 1.0)
    for _ in range(5):
        meter.add(100, 1.0)
    assert meter.rate == pytest.approx(100, rel=0.5)


def test_old_measurements_are_forgotten() -> None:
    clock = Clock()
    meter = RateMeter(window=100.0, clock=clock)
    assert (meter.rate, meter.seconds_for(10)) == (None, 0.0)
    meter.add(10, 10.0)
    assert (meter.rate, meter.seconds_for(10)) == (1.0, 10.0)
    clock.now_s = MAX_AGE_S + 1
    assert meter.rate is None
    meter.add(10, 1.0)
    assert meter.rate == 10.0


def worth(names: list[str] | None = None) -> Worth:
    return Worth(LAYOUT, 16, RateMeter(1e9), names or [])


def test_what_was_not_measured_is_tried() -> None:
    assert worth().pays({HOST: 1})
    made = worth()
    made.prefill.add(1000, 1.0)
    assert made.pays({HOST: 1})


def test_the_quicker_way_is_taken() -> None:
    """A page of 1 MiB holds 16 tokens: the break-even is 1 MiB / 16 tokens of prefill."""
    made = worth()
    made.prefill.add(16_000, 1.0)  # a page a millisecond
    made.tiers[HOST].add(1.1e3 * (1 << 20), 1.0)
    assert made.pays({HOST: 7})
    made = worth()
    made.prefill.add(16_000, 1.0)
    made.tiers[HOST].add(0.9e3 * (1 << 20), 1.0)
    assert not made.pays({HOST: 7})


def test_tiers_add_up() -> None:
    made = worth(["disk"])
    made.prefill.add(16_000, 1.0)
    made.tiers[HOST].add(100e3 * (1 << 20), 1.0)
    made.tiers["disk"].add(0.5e3 * LAYOUT.record_bytes, 1.0)  # 2 ms a page
    assert not made.pays({"disk": 1})
    assert not made.pays({HOST: 1, "disk": 2})
    assert made.pays({HOST: 3, "disk": 2})


def test_patience_is_a_few_times_computing() -> None:
    made = worth()
    assert made.patience_s(1000) == 1.0
    made.prefill.add(16_000, 1.0)
    assert made.patience_s(1000) == pytest.approx(3.0)


class Ticket:
    landed = False
    broken = False

    def done(self) -> bool:
        if self.broken:
            raise RuntimeError("lost")
        return self.landed


def test_copies_land_in_order_and_are_measured() -> None:
    copies, landed = Copies(), []
    tickets = [Ticket(), Ticket()]
    for number, ticket in enumerate(tickets):
        copies.begin(ticket, 100, lambda ok, number=number: landed.append((number, ok)))  # type: ignore[misc]
    assert copies.patience_s() is not None
    tickets[1].landed = True
    copies.poll()
    assert (landed, len(copies)) == ([], 2)
    tickets[0].landed = True
    copies.poll()
    assert landed == [(0, True), (1, True)]
    assert (copies.num_bytes, copies.patience_s()) == (200, None)
    assert copies.seconds > 0 and copies.meter.rate is not None


def test_a_copy_that_is_lost_is_told() -> None:
    copies, landed = Copies(), []
    ticket = Ticket()
    ticket.broken = True
    copies.begin(ticket, 100, landed.append)
    copies.poll()
    assert (landed, len(copies), copies.num_failed, copies.num_bytes) == ([False], 0, 1, 0)
