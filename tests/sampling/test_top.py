import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegainfer_core.sampling import top_token_ids


def slow_top(row: np.ndarray, count: int) -> list[int]:
    return sorted(range(len(row)), key=lambda i: (-row[i], i))[:count]


@given(
    st.lists(
        st.sampled_from([0.0, -0.0, 1.0, 2.5, -3.0, float("inf"), float("-inf")])
        | st.floats(-(2.0**100), 2.0**100, width=32),
        min_size=1,
        max_size=60,
    ),
    st.integers(0, 70),
)
@settings(deadline=None)
def test_equals_a_full_sort(values: list[float], count: int) -> None:
    row = np.array(values, np.float32)
    assert top_token_ids(row, count).tolist() == slow_top(row, count)


@pytest.mark.parametrize("vocab", [4095, 4096, 20_011])
@pytest.mark.parametrize("count", [1, 100, 1500])
@pytest.mark.parametrize("distinct", [1, 3, 50, 10**6])
def test_long_rows(vocab: int, count: int, distinct: int) -> None:
    rng = np.random.default_rng([vocab, count, distinct])
    row = (rng.integers(0, distinct, vocab) / 7 - 3).astype(np.float32)
    assert top_token_ids(row, count).tolist() == slow_top(row, count)


def test_large_entries_side_by_side() -> None:
    row = np.zeros(30_000, np.float32)
    row[10_000:12_000] = np.arange(2000)
    assert top_token_ids(row, 3).tolist() == [11_999, 11_998, 11_997]
    assert top_token_ids(row, 2001).tolist()[-2:] == [0, 1]
