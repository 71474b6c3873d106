"""Who shares out the products of steps with few tokens."""

import pytest

from pegainfer_core.backend.numpy.product_mode import MAX_LIBRARY_TOKENS, ProductMode


def run(mode: ProductMode, num_steps: int, library_s: float, team_s: float, tokens: int = 1) -> str:
    """One letter a step."""
    letters = ""
    for _ in range(num_steps):
        by_team = mode.choose(tokens)
        mode.observe(team_s if by_team else library_s)
        letters += "t" if by_team else "l"
    return letters


def test_the_library_serves_where_it_is_faster() -> None:
    assert run(ProductMode(), 50, library_s=0.9, team_s=1.0) == "t" + 49 * "l"


def test_it_pauses_for_ever_longer_on_crowded_cores() -> None:
    letters = run(ProductMode(), 800, library_s=5.0, team_s=1.0)
    assert letters.startswith("tl" + 16 * "t" + "l" + 32 * "t" + "l" + 64 * "t")
    assert letters.count("l") <= 7


def test_it_comes_back_when_the_crowd_is_gone() -> None:
    mode = ProductMode()
    run(mode, 60, library_s=5.0, team_s=1.0)
    assert run(mode, 300, library_s=0.9, team_s=1.0).endswith(100 * "l")


def test_a_crowd_that_comes_later_is_noticed() -> None:
    mode = ProductMode()
    run(mode, 500, library_s=0.9, team_s=1.0)
    assert run(mode, 10, library_s=4.0, team_s=1.2) == "l" + 9 * "t"


def test_growing_contexts_are_no_crowd() -> None:
    mode = ProductMode()
    letters = "".join(
        run(mode, 1, library_s=0.9 + 0.002 * step, team_s=1.0 + 0.002 * step)
        for step in range(1000)
    )
    assert letters == "t" + 999 * "l"


@pytest.mark.parametrize("tokens", [MAX_LIBRARY_TOKENS + 1, 500])
def test_many_tokens_always_go_to_the_team(tokens: int) -> None:
    mode = ProductMode()
    assert run(mode, 20, 0.1, 9.0, tokens=tokens) == 20 * "t"
    assert run(mode, 2, 0.9, 1.0) == "tl"


def test_each_number_of_tokens_has_its_own_best() -> None:
    mode = ProductMode()
    run(mode, 5, library_s=0.9, team_s=1.0, tokens=1)
    assert run(mode, 5, library_s=3.0, team_s=3.4, tokens=3) == "tllll"
