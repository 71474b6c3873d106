"""Rows, requests and a plain second implementation of the whole choice, for the tests here."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from pegainfer_core.contract import GenerateRequest, SamplingParams
from pegainfer_core.engine.sequence import Sequence
from pegainfer_core.sampling.mass import PEAK_MASS, token_masses

if TYPE_CHECKING:
    from numpy.typing import NDArray

VOCAB = 1024
A, B, C, D = 97, 98, 99, 100


def make_row(entries: dict[int, float], rest: float = -40.0) -> NDArray[np.float32]:
    row = np.full(VOCAB, rest, np.float32)
    for token_id, logit in entries.items():
        row[token_id] = logit
    return row


def make_sequence(
    params: SamplingParams,
    prompt: list[int] | None = None,
    generated: list[int] | None = None,
    *,
    request_id: int = 1,
    eos: list[int] | None = None,
    sample_index: int = 0,
) -> Sequence:
    request = GenerateRequest(
        request_id=request_id,
        prompt_token_ids=prompt or [64],
        params=params,
        eos_token_ids=eos or [],
        sample_index=sample_index,
    )
    sequence = Sequence(request, max_tokens=100)
    sequence.token_ids += generated or []
    return sequence


def slow_logits(row: NDArray[np.float32], sequence: Sequence) -> list[float]:
    """Masks, bias and penalties, token by token."""
    params = sequence.request.params
    generated = sequence.token_ids[sequence.num_prompt :]
    ends = set(params.stop_token_ids)
    if not params.ignore_eos:
        ends |= set(sequence.request.eos_token_ids)
    counts = Counter(generated)
    result = []
    for token_id, logit in enumerate(row.tolist()):
        value = -math.inf if math.isnan(logit) else logit
        if params.allowed_token_ids is not None and token_id not in params.allowed_token_ids:
            value = -math.inf
        for bad in params.bad_token_sequences:
            before = bad[:-1]
            if bad[-1] == token_id and generated[len(generated) - len(before) :] == before:
                value = -math.inf
        if len(generated) < params.min_tokens and token_id in ends:
            value = -math.inf
        value += params.logit_bias.get(token_id, 0.0)
        if token_id in sequence.token_ids:
            p = params.repetition_penalty
            value = value / p if value > 0 else value * p
        value -= params.frequency_penalty * counts[token_id]
        value -= params.presence_penalty * (counts[token_id] > 0)
        result.append(value)
    return result


def slow_kept(logits: list[float], params: SamplingParams) -> tuple[dict[int, float], float]:
    """Kept ids with their renormalised shares, and how near anything came to a filter's edge."""
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if 0 < params.top_k < len(logits):
        order = order[: params.top_k]
    peak = logits[order[0]]
    weights = {i: math.exp((logits[i] - peak) / params.temperature) for i in order}
    total = sum(weights.values())
    margin = 1.0
    kept: dict[int, float] = {}
    before = 0.0
    for i in order:
        margin = min(margin, abs(before / total - params.top_p))
        if params.top_p < 1 and kept and before / total >= params.top_p:
            # Equal masses go by id, and so may those that are nearly equal.
            last = list(kept)[-1]
            others = [weights[j] for j in order if logits[j] != logits[last]]
            margin = min([margin, *(abs(w / weights[last] - 1) for w in others)])
            break
        kept[i] = weights[i]
        before += weights[i]
    if params.min_p > 0:
        margin = min([margin, *(abs(w - params.min_p) for w in kept.values() if w < 1)])
        kept = {i: w for i, w in kept.items() if w >= params.min_p}
    total = sum(kept.values())
    return {i: w / total for i, w in kept.items()}, margin


def slow_draw(kept: dict[int, float], uniform: float) -> tuple[int, float]:
    """Inverse CDF by ascending id, and the distance to the nearest edge."""
    running, chosen, margin = 0.0, -1, 1.0
    for token_id in sorted(kept):
        running += kept[token_id]
        margin = min(margin, abs(running - uniform))
        if chosen < 0 and running > uniform:
            chosen = token_id
    return chosen, margin


def exact_choice(row: NDArray[np.float32], params: SamplingParams, bits: int) -> int:
    """The documented definition on integer masses, with plain sorts: no tolerance needed."""
    masses = dict(enumerate(token_masses(row, row.max(), params.temperature).tolist()))
    if 0 < params.top_k < len(row):
        order = sorted(masses, key=lambda i: (-row[i], i))
        masses = {i: masses[i] for i in order[: params.top_k]}
    if params.top_p < 1:
        total = sum(masses.values())
        limit = min(math.ceil(params.top_p * total), total)
        kept: dict[int, int] = {}
        before = 0
        for i in sorted(masses, key=lambda i: (-masses[i], i)):
            if kept and before >= limit:
                break
            kept[i] = masses[i]
            before += masses[i]
        masses = kept
    masses = {i: m for i, m in masses.items() if m >= math.ceil(params.min_p * PEAK_MASS)}
    target = sum(masses.values()) * bits >> 64
    running = 0
    for token_id in sorted(masses):
        running += masses[token_id]
        if running > target:
            return token_id
    raise AssertionError("no token was kept")
