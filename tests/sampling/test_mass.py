import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pegainfer_core.sampling.mass import PEAK_MASS, token_masses


def test_masses_are_exponentials() -> None:
    logits = np.linspace(-25, 3, 100_001, dtype=np.float32)
    for temperature in (0.3, 1.0, 1.7):
        masses = token_masses(logits, np.float32(3), temperature)
        exact = np.exp((logits.astype(np.float64) - 3) / temperature)
        near = exact > 1e-7
        assert np.abs(masses[near] / PEAK_MASS / exact[near] - 1).max() < 4e-6
        assert np.abs(masses / PEAK_MASS - exact).max() < 1e-6
        assert masses[-1] == PEAK_MASS


def test_the_impossible_weighs_nothing() -> None:
    low = np.float32(-np.finfo(np.float32).max)
    logits = np.array([-np.inf, low, -30, 0, np.finfo(np.float32).max], np.float32)
    assert token_masses(logits, logits[-1], 1e-5).tolist() == [0, 0, 0, 0, PEAK_MASS]
    assert token_masses(logits[:4], np.float32(0), 1.0).tolist() == [0, 0, 0, PEAK_MASS]
    flat = token_masses(logits[2:4], np.float32(0), 1e6)
    assert flat[1] == PEAK_MASS
    assert abs(flat[0] / PEAK_MASS - math.exp(-30e-6)) < 1e-6


@given(st.lists(st.floats(-50, 0, width=32), min_size=1, max_size=30), st.floats(0.01, 100))
@settings(deadline=None)
def test_an_entry_does_not_depend_on_its_neighbours(
    values: list[float], temperature: float
) -> None:
    """The same bits alone, in a long row and at any offset: vector units must not matter."""
    logits = np.array(values, np.float32)
    whole = token_masses(logits, np.float32(0), temperature)
    alone = [
        int(token_masses(logits[i : i + 1], np.float32(0), temperature)[0])
        for i in range(len(values))
    ]
    assert whole.tolist() == alone
    long = np.tile(logits, 40_000 // len(values))
    assert np.array_equal(
        token_masses(long, np.float32(0), temperature), np.tile(whole, 40_000 // len(values))
    )


MASSES_1 = [4398046511104, 3425202077696, 1617950932992, 3151338405888, 17973813248, 182076, 1]
MASSES_07 = [4398046511104, 3077192024064, 1053996351488, 2731825168384, 1701946368, 124, 0]


def test_known_masses() -> None:
    """Pinned: a device kernel and every processor must give these integers."""
    logits = np.array([0, -0.25, -1, -1 / 3, -5.5, -17, -28.9], np.float32)
    assert token_masses(logits, np.float32(0), 1.0).tolist() == MASSES_1
    assert token_masses(logits, np.float32(0), 0.7).tolist() == MASSES_07
