"""What configs of all decoders say alike, and names of what lies around the layers."""

from __future__ import annotations

import re

import pytest

from pegainfer_core.weights import (
    HEAD,
    ConfigError,
    HeadSizes,
    attention_heads,
    layer_count,
    model_type,
    require_multiple,
    require_silu,
    rope_config,
    unread_names,
)

HEADS: dict[str, object] = {
    "hidden_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 16,
}


def without(*keys: str, **changes: object) -> dict[str, object]:
    return {key: value for key, value in HEADS.items() if key not in keys} | changes


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "a"}, "a"),
        ({"model_type": "a", "text_config": {"model_type": "b"}}, "a"),
        ({"text_config": {"model_type": "b"}}, "b"),
        ({"model_type": None, "text_config": {"model_type": "b"}}, "b"),
        ({}, None),
    ],
)
def test_the_outer_model_type_holds(config: dict[str, object], expected: object) -> None:
    assert model_type(config) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (HEADS, HeadSizes(8, 2, 16)),
        (without("head_dim"), HeadSizes(8, 2, 8)),
        (without("head_dim", num_key_value_heads=None), HeadSizes(8, 8, 8)),
    ],
)
def test_heads(config: dict[str, object], expected: HeadSizes) -> None:
    assert attention_heads(config) == expected


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (without("num_attention_heads"), "num_attention_heads is missing"),
        (without("hidden_size", "head_dim"), "hidden_size is missing"),
        (without(num_key_value_heads=3), "8 is not a multiple of num_key_value_heads 3"),
        (without(head_dim=1), "head_dim is 1"),
        (without("head_dim", hidden_size=8), "head_dim is 1; expected an integer >= 2"),
    ],
)
def test_heads_that_cannot_be(config: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        attention_heads(config)


def test_counts_and_activations() -> None:
    assert layer_count({"num_hidden_layers": 3}) == 3
    with pytest.raises(ConfigError, match="num_hidden_layers is 10001; more than 10000"):
        layer_count({"num_hidden_layers": 10_001})
    require_multiple("a", 6, "b", 3)
    with pytest.raises(ConfigError, match=r"config\.json: a 7 is not a multiple of b 3"):
        require_multiple("a", 7, "b", 3)
    require_silu({}, "M")
    require_silu({"hidden_act": "silu"}, "M")
    with pytest.raises(ConfigError, match="hidden_act is 'gelu'; M is served with 'silu'"):
        require_silu({"hidden_act": "gelu"}, "M")


def test_contexts_that_positions_are_scaled_for() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1000}
    for scaling, expected in (
        (None, 1600),
        ({"rope_type": "linear", "factor": 2.0}, 3200),
        (yarn, 4000),
    ):
        rope = rope_config({"rope_scaling": scaling, "max_position_embeddings": 1600}, 16)
        assert rope.context_tokens(1600) == expected


def test_what_is_not_read() -> None:
    def is_unread(name: str, *parts: str, tied: bool) -> bool:
        return any(re.match(pattern, name) for pattern in unread_names(*parts, tied=tied))

    assert is_unread("model.layers.3.self_attn.rotary_emb.inv_freq", tied=False)
    assert is_unread(HEAD, tied=True) and not is_unread(HEAD, tied=False)
    assert is_unread("visual.patch", r"visual\.", tied=False)
    assert not is_unread("model.layers.3.self_attn.q_proj.weight", r"visual\.", tied=True)
