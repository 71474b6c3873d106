"""Sampling parameters made in Python, where nothing checks types on the way."""

from __future__ import annotations

import numpy as np
import pytest

from pegainfer_core.contract import (
    GenerateRequest,
    InvalidParam,
    ParamError,
    SamplingParams,
    ServePlan,
)
from pegainfer_core.engine import check_request

PLAN = ServePlan(
    max_model_len=64,
    vocab_size=1000,
    backend="numpy",
    page_tokens=16,
    num_pages=8,
    max_num_seqs=2,
    max_prefill_tokens=64,
)


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
        ("top_k", None),
        ("bad_token_sequences", [[1]] * 4097),
        ("bad_token_sequences", [[1.5]]),
        ("bad_token_sequences", [1]),
        ("bad_token_sequences", "ab"),
        ("stop_token_ids", [2.5]),
        ("stop_token_ids", ["a"]),
        ("stop_token_ids", [True]),
        ("stop_token_ids", 5),
        ("stop_token_ids", None),
        ("allowed_token_ids", [1.0]),
        ("allowed_token_ids", 3),
        ("logit_bias", {2.5: 1}),
        ("logit_bias", {"a": 1}),
        ("logit_bias", {1: "x"}),
        ("logit_bias", [1]),
        ("ignore_eos", "yes"),
    ],
)
def test_a_wrong_value_is_named(field: str, value: object) -> None:
    params = SamplingParams(**{field: value})  # type: ignore[arg-type]
    with pytest.raises(ParamError, match=field):
        params.validate(1000)
    request = GenerateRequest(request_id=1, prompt_token_ids=[1], params=params)
    reason = check_request(request, PLAN)
    assert isinstance(reason, InvalidParam) and reason.field == field


def test_numpys_numbers_are_numbers() -> None:
    params = SamplingParams(max_tokens=np.int64(3), temperature=np.float32(0.5))  # type: ignore[arg-type]
    params.validate(1000)
