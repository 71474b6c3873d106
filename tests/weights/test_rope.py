"""RoPE settings in every spelling: cases C03 and N08, and YaRN's numbers."""

import math

import pytest

from pegainfer_core.weights import ConfigError, RopeConfig, rope_config

THETA = 500_000
PLAIN = RopeConfig(rope_type="default", theta=THETA, rotary_dim=128)
YARN: dict[str, object] = {
    "factor": 4.0,
    "original_max_position_embeddings": 32768,
    "rope_theta": 1_000_000,
}

FORMS: dict[str, dict[str, object]] = {
    "a": {"rope_theta": THETA},
    "b": {"rope_parameters": {"rope_type": "default", "rope_theta": THETA}},
    "c": {"rope_theta": THETA, "rope_scaling": None},
    "d": {"rope_scaling": {"rope_type": "default", "rope_theta": THETA}},
    "e": {"text_config": {"rope_parameters": {"rope_type": "default", "rope_theta": THETA}}},
    "empty object": {"rope_theta": THETA, "rope_scaling": {}},
    "old type key": {"rope_theta": THETA, "rope_scaling": {"type": "default"}},
    "equal twice": {
        "rope_parameters": {"rope_type": "default", "rope_theta": THETA},
        "rope_scaling": {"type": "default", "rope_theta": THETA},
    },
    # The value inside the object wins.
    "j": {
        "rope_theta": 10_000,
        "rope_parameters": {"rope_type": "default", "rope_theta": THETA},
    },
    "e and an outer theta": {
        "rope_theta": 10_000,
        "text_config": {"rope_parameters": {"rope_type": "default", "rope_theta": THETA}},
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_theta_is_found_in_every_form(form: str) -> None:
    assert rope_config(FORMS[form], 128) == PLAIN


def test_theta_defaults_to_the_familys() -> None:
    assert rope_config({}, 128).theta == 10_000
    assert rope_config({}, 128, default_theta=5e4).theta == 5e4
    assert rope_config({"rope_parameters": {"rope_type": "default"}}, 128).theta == 10_000


@pytest.mark.parametrize("key", ["type", "rope_type"])
@pytest.mark.parametrize("outer", ["rope_scaling", "rope_parameters"])
def test_yarn_in_both_spellings(key: str, outer: str) -> None:
    found = rope_config({outer: {key: "yarn", **YARN}, "max_position_embeddings": 40960}, 128)
    assert found == RopeConfig(
        rope_type="yarn",
        theta=1e6,
        rotary_dim=128,
        factor=4.0,
        original_max_position_embeddings=32768,
        attention_factor=0.1 * math.log(4) + 1,
    )


def test_yarn_falls_back_to_the_models_context() -> None:
    found = rope_config(
        {"rope_scaling": {"type": "yarn", "factor": 4}, "max_position_embeddings": 2048}, 64
    )
    assert (found.original_max_position_embeddings, found.factor) == (2048, 4.0)
    implied = rope_config(
        {
            "rope_scaling": {"type": "yarn", "original_max_position_embeddings": 2048},
            "max_position_embeddings": 16384,
        },
        64,
    )
    assert implied.factor == 8.0


def test_yarn_options_are_read() -> None:
    options = {"beta_fast": 16, "beta_slow": None, "truncate": False, "attention_factor": 1.5}
    found = rope_config({"rope_scaling": {"type": "yarn", **YARN, **options}}, 128)
    assert (found.beta_fast, found.beta_slow, found.truncate) == (16.0, 1.0, False)
    assert found.attention_factor == 1.5


def test_linear_scaling() -> None:
    found = rope_config({"rope_scaling": {"type": "linear", "factor": 2.0}}, 8)
    plain = rope_config({}, 8).inverse_frequencies()
    assert found.inverse_frequencies() == tuple(value / 2 for value in plain)
    assert found.attention_factor == 1.0


def test_partial_rotary() -> None:
    assert rope_config({"partial_rotary_factor": 0.25}, 256).rotary_dim == 64
    assert rope_config({"rope_parameters": {"partial_rotary_factor": 0.5}}, 256).rotary_dim == 128
    assert rope_config({}, 256, default_partial_rotary_factor=0.25).rotary_dim == 64
    assert len(rope_config({}, 256).inverse_frequencies()) == 128


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"rope_parameters": {"rope_type": "zzz"}}, "rope_parameters: rope_type is 'zzz'"),
        ({"rope_scaling": {"type": "llama3"}}, "'llama3'; supported are default, linear, yarn"),
        ({"rope_scaling": {"type": ["yarn"]}}, r"rope_type is \['yarn'\]"),
        ({"rope_scaling": "yarn"}, "rope_scaling is 'yarn'; expected an object"),
        ({"rope_theta": "1e6"}, "rope_theta is '1e6'"),
        ({"rope_theta": 0}, "rope_theta is 0"),
        ({"rope_theta": float("nan")}, "rope_theta is nan"),
        ({"partial_rotary_factor": 1.5}, "partial_rotary_factor 1.5"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling: factor is missing"),
        ({"rope_scaling": {"type": "linear", "factor": 0.5}}, "factor is 0.5; expected a number"),
        ({"rope_scaling": {"type": "yarn", "factor": 4}}, "original_max_position_embeddings"),
        ({"rope_scaling": {"type": "yarn", **YARN, "factor": 0}}, "factor is 0"),
        ({"rope_scaling": {"type": "yarn", **YARN, "beta_slow": 64}}, "beta_slow 64"),
        ({"rope_scaling": {"type": "yarn", **YARN, "truncate": 1}}, "truncate is 1"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}, "per layer type"),
        (
            {
                "rope_parameters": {"rope_type": "default", "rope_theta": 5e5},
                "rope_scaling": {"type": "yarn", "factor": 4.0},
            },
            "rope_parameters and rope_scaling are both given and differ",
        ),
    ],
)
def test_faulty_settings(config: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rope_config(config, 128)


@pytest.mark.parametrize("head_dim", [1, 3, 33])
def test_odd_heads_are_refused(head_dim: int) -> None:
    with pytest.raises(ConfigError, match="even number of channels"):
        rope_config({}, head_dim)


def yarn(factor: float, **options: float) -> RopeConfig:
    scaling = {"type": "yarn", "factor": factor, "original_max_position_embeddings": 4096}
    return rope_config({"rope_scaling": {**scaling, **options}}, 64)


@pytest.mark.parametrize(
    ("found", "cos_factor", "softmax_scale"),
    [
        (yarn(40, mscale=0.707, mscale_all_dim=0.707), 1.0, 0.114721),
        (yarn(32, mscale=1.0, mscale_all_dim=1.0), 1.0, 0.130861),
        (yarn(8, mscale=1.0, mscale_all_dim=0.5), 1.09418, 192**-0.5 * 1.21875),
        (yarn(1, mscale=1.0, mscale_all_dim=1.0), 1.0, 192**-0.5),
        (yarn(8), 0.1 * math.log(8) + 1, 192**-0.5),
    ],
)
def test_mla_corrections(found: RopeConfig, cos_factor: float, softmax_scale: float) -> None:
    """Case N08, with qk heads of 192 channels."""
    assert found.attention_factor == pytest.approx(cos_factor, abs=1e-5)
    scale = 192**-0.5 * found.mla_softmax_multiplier
    assert scale == pytest.approx(softmax_scale, abs=1e-6)


def test_yarn_keeps_fast_channels_and_slows_the_others() -> None:
    found = rope_config({"rope_scaling": {"type": "yarn", **YARN}}, 128)
    plain = rope_config({"rope_theta": 1_000_000}, 128).inverse_frequencies()
    ratio = [a / b for a, b in zip(found.inverse_frequencies(), plain, strict=True)]
    # 32 turns in 32768 tokens are a wavelength of 1024: channel 23.6; one turn: channel 39.7.
    assert ratio[:24] == [1.0] * 24
    assert ratio[40:] == pytest.approx([0.25] * 24)
    assert sorted(ratio[23:41], reverse=True) == ratio[23:41]
    assert ratio[30] == pytest.approx(1 - (30 - 23) / (40 - 23) * 0.75)


def test_far_positions_turn_by_the_right_angle() -> None:
    """Case N06: theta 1e6, 128 channels, pair 8 at position 32767."""
    frequency = rope_config({"rope_theta": 1e6}, 128).inverse_frequencies()[8]
    assert math.cos(32767 * frequency) == pytest.approx(-0.72053, abs=1e-3)
