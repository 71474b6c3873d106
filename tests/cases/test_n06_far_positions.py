"""N06: rotary angles are made of exact positions, far positions included.

Seen elsewhere: positions or inverse frequencies are rounded to bfloat16, which holds integers
exactly up to 256 only; far positions collapse or point elsewhere.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pegainfer_qwen3.config import parse_config

from pegainfer_core.backend import DType, NumpyBackend, rope_tables
from pegainfer_core.testing.conformance.session import Session
from pegainfer_core.testing.tiny import tiny_qwen3
from pegainfer_core.weights import RopeConfig, load_config, round_floats
from tests.cases.answers import assert_from_logits, greedy, score_prompt
from tests.cases.conftest import LoadLLM, StartEngine
from tests.hf.reference_qwen3 import ReferenceQwen3

#: Theta, rotary channels, pair, position, its cosine, and the one that a bfloat16 position (or, in
#: the last, frequency) gives.
COSINES = [
    (1e6, 2, 0, 257, 0.81931, -0.0398),
    (1e6, 2, 0, 4097, 0.93477, 0.8040),
    (1e6, 2, 0, 20_001, -0.05035, 0.9993),
    (1e6, 128, 8, 32_767, -0.72053, 0.7709),
]
NUM_FAR = 3000


def bfloat16(value: float) -> np.float32:
    values = np.array([value], np.float32)
    round_floats(values, "bfloat16")
    return values[0]


@pytest.mark.parametrize(("theta", "width", "pair", "position", "right", "wrong"), COSINES)
def test_unit(
    theta: float, width: int, pair: int, position: int, right: float, wrong: float
) -> None:
    config = RopeConfig(rope_type="default", theta=theta, rotary_dim=width)
    cos, _ = rope_tables(config, position + 1)
    assert cos[position, pair] == pytest.approx(right, abs=1e-3)
    backend = NumpyBackend()
    table = backend.rope_table(config, position + 1, DType.BFLOAT16)
    stored = backend.to_host(table.cos, position + 1)[position, pair]
    assert stored == pytest.approx(right, abs=4e-3)
    # The case's own wrong value, so that it is known what this test would see.
    frequency = theta ** (-2 * pair / width)
    angle = position * bfloat16(frequency) if pair else bfloat16(position) * frequency
    assert np.cos(angle) == pytest.approx(wrong, abs=1e-3)


def test_the_table_of_a_checkpoint(tmp_path: Path) -> None:
    """The same through config.json, as the 0.6B release spells it."""
    folder = tiny_qwen3(tmp_path / "m", head_dim=128, layers=1, old_style_config=True)
    rope = parse_config(load_config(folder)).rope
    cos, sin = rope_tables(rope, 32_768)
    assert cos[32_767, 8] == pytest.approx(-0.72053, abs=1e-3)
    exact = np.arange(32_768)[:, None] * np.array(rope.inverse_frequencies())
    # An angle of 32767 is itself only known to 2e-3 in float32.
    assert np.abs(cos - np.cos(exact)).max() < 3e-3
    assert np.abs(sin - np.sin(exact)).max() < 3e-3


@pytest.fixture(scope="module")
def narrow_f3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """F3 with half its heads, which halves what the reference takes."""
    return tiny_qwen3(tmp_path_factory.mktemp("n06") / "m", heads=(2, 1), seed=12)


def test_far_prompt_and_suffix(narrow_f3: Path, load: LoadLLM, start: StartEngine) -> None:
    """3000 tokens, then 20 more behind them as a cached prefix; float64 is the reference."""
    session = start(narrow_f3, max_model_len=4096)
    ids = session.prompt(NUM_FAR + 20, seed=6)
    assert session.generate(ids[:NUM_FAR], greedy(1)).cached_tokens == 0
    params = greedy(8, logprobs=20)
    behind = session.generate(ids, params)
    assert behind.cached_tokens == NUM_FAR // 16 * 16
    logits = ReferenceQwen3(narrow_f3).logits([*ids, *behind.token_ids])
    for index, entry in enumerate(behind.logprobs):
        assert_from_logits(entry, logits[len(ids) - 1 + index])
    entries = score_prompt(load(narrow_f3, max_model_len=4096), ids)
    for position, entry in enumerate(entries):
        assert_from_logits(entry, logits[position])


def test_the_prefix_matters(narrow_f3: Path, start: StartEngine) -> None:
    """Were far tokens lost, or positions counted from the suffix, nothing here would move."""
    session = start(narrow_f3, max_model_len=4096)
    ids = session.prompt(NUM_FAR + 20, seed=6)
    whole = best(session, ids)
    other = best(session, [(ids[0] + 1) % 1000, *ids[1:]])
    assert max(abs(other[token] - whole[token]) for token in other.keys() & whole.keys()) > 2e-3
    assert best(session, ids[NUM_FAR:]).keys() != whole.keys()


def best(session: Session, prompt: list[int]) -> dict[int, float]:
    """The 20 most likely next tokens."""
    (entry,) = session.generate(prompt, greedy(1, logprobs=20)).logprobs
    return dict(zip(entry.top_token_ids, entry.top_logprobs, strict=True))
