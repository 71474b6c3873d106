"""Sampling parameters made in Python, where nothing checks types on the way."""

from __future__ import annotations

import numpy as np
import pytest

from pegainfer_core.contract import ParamError, SamplingParams


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 2.5),
        ("max_tokens", True),
        ("min_tokens", "1"),
        ("top_k", 1.5),
        ("seed", 1.0),
        ("logprobs", "5"),
        ("temperature", "x"),
        ("temperature", None),
        ("top_p", True),
        ("temperature", float("nan")),
        ("bad_token_sequences", [[1]] * 4097),
    ],
)
def test_a_wrong_value_is_named(field: str, value: object) -> None:
    params = SamplingParams(**{field: value})  # type: ignore[arg-type]
    with pytest.raises(ParamError, match=field):
        params.validate(1000)


def test_numpys_numbers_are_numbers() -> None:
    params = SamplingParams(max_tokens=np.int64(3), temperature=np.float32(0.5))  # type: ignore[arg-type]
    params.validate(1000)
