"""Means and percentiles: NumPy's linear method, and what happens with nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pegainfer_bench.report import Summary, parse_percentiles, percentile

from pegainfer_core.plugin import CommandFault

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50)


@given(NUMBERS, st.floats(0, 100))
def test_percentiles_are_numpys(values: list[float], percent: float) -> None:
    expected = np.percentile(values, percent)
    assert percentile(sorted(values), percent) == pytest.approx(expected, rel=1e-9, abs=1e-6)


@given(NUMBERS)
def test_a_summary(values: list[float]) -> None:
    summary = Summary(values, [0, 100])
    assert summary.mean == pytest.approx(np.mean(values), abs=1e-6)
    assert summary.std == pytest.approx(np.std(values), rel=1e-6, abs=1e-4)
    assert summary.percentiles == {0: min(values), 100: max(values)}


def test_nothing_is_not_a_number_and_null_in_json() -> None:
    assert math.isnan(percentile([], 50))
    assert set(Summary([], [99]).as_json("ttft").values()) == {None}


def test_percentile_flags() -> None:
    assert parse_percentiles("50,99.9", "--x") == [50, 99.9]
    for text in ("", "50,", "101", "-1", "nan", "p99"):
        with pytest.raises(CommandFault, match=r"--x .*percentile from 0 to 100"):
            parse_percentiles(text, "--x")
