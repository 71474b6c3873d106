"""N08: YaRN's cos/sin factor and its softmax correction are two numbers, never mixed up.

Seen elsewhere: one takes the place of the other, or is left out. The check of an MLA model against
transformers is owed by its family's issue (pending.toml); the numbers are made here already.
"""

from __future__ import annotations

import pytest

from pegainfer_core.weights import RopeConfig, rope_config

SCALE = 192**-0.5


def read(factor: float, **mscale: float) -> RopeConfig:
    scaling = {
        "type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": 4096,
        "beta_fast": 32,
        "beta_slow": 1,
        **mscale,
    }
    config = {
        "model_type": "deepseek_v2",
        "max_position_embeddings": int(4096 * factor),
        "rope_theta": 10_000,
        "rope_scaling": scaling,
    }
    return rope_config(config, 64)


@pytest.mark.parametrize(
    ("letter", "rope", "factor", "softmax_scale"),
    [
        ("a", read(40, mscale=0.707, mscale_all_dim=0.707), 1.0, 0.114721),
        ("b", read(32, mscale=1.0, mscale_all_dim=1.0), 1.0, 0.130861),
        ("c", read(8, mscale=1.0, mscale_all_dim=0.5), 1.09418, 1.21875 * SCALE),
        ("d", read(1, mscale=1.0, mscale_all_dim=1.0), 1.0, SCALE),
        ("e", read(40, mscale=0.707), None, SCALE),
    ],
)
def test_both_numbers(
    letter: str, rope: RopeConfig, factor: float | None, softmax_scale: float
) -> None:
    if factor is not None:
        assert rope.attention_factor == pytest.approx(factor, abs=1e-5)
    assert rope.mla_softmax_multiplier * SCALE == pytest.approx(softmax_scale, abs=1e-6)
    assert pytest.approx(0.072169, abs=1e-6) == SCALE, "what a gets when the correction is lost"
