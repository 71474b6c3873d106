"""Case N06: angles are made in float32 and only their cos and sin are narrowed."""

import math

import numpy as np
import pytest

from pegainfer_core.backend import DType, NumpyBackend, rope_tables
from pegainfer_core.weights import RopeConfig, rope_config

#: (position, cos of position * inverse frequency 1).
UNIT_COSINES = [(257, 0.81931), (4097, 0.93477), (20_001, -0.05035)]


@pytest.mark.parametrize(("position", "expected"), UNIT_COSINES)
def test_n06_unit_frequency(position: int, expected: float) -> None:
    cos, _ = rope_tables(RopeConfig(rope_type="default", theta=1e6, rotary_dim=2), 20_002)
    assert cos[position, 0] == pytest.approx(expected, abs=1e-3)


def test_n06_pair_8_of_128_at_32767() -> None:
    cos, _ = rope_tables(RopeConfig(rope_type="default", theta=1e6, rotary_dim=128), 32_768)
    assert cos[32_767, 8] == pytest.approx(-0.72053, abs=1e-3)


@pytest.mark.parametrize(("position", "expected"), UNIT_COSINES)
def test_n06_narrowed_tables(position: int, expected: float) -> None:
    backend = NumpyBackend()
    config = RopeConfig(rope_type="default", theta=1e6, rotary_dim=2)
    table = backend.rope_table(config, 20_002, DType.BFLOAT16)
    cos = backend.to_host(table.cos, 20_002)
    assert cos[position, 0] == pytest.approx(expected, abs=4e-3)
    assert not (cos.view(np.uint32) & 0xFFFF).any()


def test_every_position_up_to_the_length_has_its_own_row() -> None:
    cos, sin = rope_tables(RopeConfig(rope_type="default", theta=1e4, rotary_dim=4), 300)
    assert cos.shape == sin.shape == (300, 2)
    for position in (0, 1, 299):
        assert cos[position, 1] == pytest.approx(math.cos(position * 1e4**-0.5), abs=1e-5)
        assert sin[position, 1] == pytest.approx(math.sin(position * 1e4**-0.5), abs=1e-5)


def test_yarn_turns_less_and_scales_cos_and_sin() -> None:
    config = {
        "max_position_embeddings": 4096,
        "rope_theta": 1e6,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 1024,
        },
    }
    yarn = rope_config(config, 128)
    cos, sin = rope_tables(yarn, 2)
    factor = 0.1 * math.log(4.0) + 1.0
    assert np.hypot(cos, sin) == pytest.approx(factor, abs=1e-6)
    plain = RopeConfig(rope_type="default", theta=1e6, rotary_dim=128)
    angles = np.arctan2(sin[1], cos[1])
    expected = np.array(plain.inverse_frequencies())
    assert angles[0] == pytest.approx(expected[0], rel=1e-5), "fast channels are kept"
    assert angles[-1] == pytest.approx(expected[-1] / 4, rel=1e-4), "slow ones are stretched"
