"""Reading config.json: cases C06 and C08, and faulty files."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegainfer_core import weights
from pegainfer_core.weights import (
    ConfigError,
    bool_field,
    checkpoint_dtype,
    eos_token_ids,
    float_field,
    int_field,
    load_config,
    object_field,
    quantization_method,
    refuse_quantization,
    text_config,
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not valid JSON"),
        ('{"a": 1', "not valid JSON"),
        ("[1]", "holds a JSON list; expected an object"),
        ("[" * 100_000, "not valid JSON"),
        ("\xff\xfe\xfa", "not valid JSON"),
    ],
)
def test_faulty_config_names_file_and_reason(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=reason) as caught:
        load_config(tmp_path)
    assert str(tmp_path / "config.json") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unreadable_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    with pytest.raises(ConfigError, match=r"config\.json: cannot be read"):
        load_config(tmp_path)
    (tmp_path / "config.json").rmdir()
    (tmp_path / "config.json").symlink_to("gone")
    with pytest.raises(ConfigError, match="broken link"):
        load_config(tmp_path)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"dtype": "bfloat16"}, "bfloat16"),
        ({"torch_dtype": "bfloat16"}, "bfloat16"),
        ({"torch_dtype": "torch.bfloat16"}, "bfloat16"),
        ({"text_config": {"dtype": "bfloat16"}}, "bfloat16"),
        ({"text_config": {"torch_dtype": "torch.float16"}}, "float16"),
        ({}, None),
        ({"dtype": None, "torch_dtype": None}, None),
        # dtype wins over torch_dtype, the inner config over the outer one.
        ({"dtype": "bfloat16", "torch_dtype": "float32"}, "bfloat16"),
        ({"dtype": None, "torch_dtype": "float32"}, "float32"),
        ({"dtype": "float32", "text_config": {"torch_dtype": "bfloat16"}}, "bfloat16"),
        ({"torch_dtype": "bfloat16", "text_config": {"dtype": None}}, "bfloat16"),
    ],
)
def test_dtype_in_every_place(config: dict[str, object], expected: str | None) -> None:
    assert checkpoint_dtype(config) == expected


@pytest.mark.parametrize("value", ["int8", "torch.float64", 16, {"a": "bfloat16"}])
def test_unsupported_dtype_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"torch_dtype is .*supported are bfloat16"):
        checkpoint_dtype({"torch_dtype": value})


def test_wrapped_and_flat_config_are_equal() -> None:
    sizes: dict[str, object] = {"hidden_size": 64, "head_dim": 32, "rope_theta": 5e5}
    wrapped = {"model_type": "outer", "text_config": {"model_type": "inner", **sizes}}
    assert text_config(wrapped) == {"model_type": "inner", **sizes}
    assert text_config({"model_type": "inner", **sizes}) == {"model_type": "inner", **sizes}
    assert wrapped["text_config"] == {"model_type": "inner", **sizes}


def test_inner_null_leaves_the_outer_value() -> None:
    flat = text_config({"eos_token_id": 3, "text_config": {"eos_token_id": None, "pad": None}})
    assert flat == {"eos_token_id": 3, "pad": None}


def test_rope_spellings_come_from_one_level() -> None:
    flat = text_config(
        {"rope_scaling": {"type": "yarn"}, "text_config": {"rope_theta": 5e5, "rope_scaling": None}}
    )
    assert flat == {"rope_theta": 5e5, "rope_scaling": None}


def test_text_config_must_be_an_object() -> None:
    with pytest.raises(ConfigError, match="text_config is 'x'; expected an object"):
        text_config({"text_config": "x"})


@pytest.mark.parametrize(
    ("value", "expected"),
    [(2, (2,)), ([5, 2, 5], (5, 2)), (None, ()), ([], ())],
)
def test_eos_ids(value: object, expected: tuple[int, ...]) -> None:
    assert eos_token_ids({"eos_token_id": value}) == expected
    assert eos_token_ids({"text_config": {"eos_token_id": value}}) == expected


@pytest.mark.parametrize("value", ["2", [1, None], True, -1, 1.5, {"a": 1}])
def test_faulty_eos_ids(value: object) -> None:
    with pytest.raises(ConfigError, match="eos_token_id is"):
        eos_token_ids({"eos_token_id": value})


FP8: dict[str, object] = {"quant_method": "fp8", "weight_block_size": [128, 128]}


@pytest.mark.parametrize(
    ("config", "method"),
    [
        ({"quantization_config": FP8}, "fp8"),
        ({"text_config": {"quantization_config": FP8}}, "fp8"),
        ({"quantization_config": {"quant_method": "zzz"}}, "zzz"),
        ({"quantization_config": {"format": "pack-quantized"}}, "pack-quantized"),
        ({"compression_config": {"quant_method": "compressed-tensors"}}, "compressed-tensors"),
        ({"quantization_config": {"bits": 4}}, "unnamed"),
    ],
)
def test_quantization_is_refused_by_name(config: dict[str, object], method: str) -> None:
    assert quantization_method(config) == method
    with pytest.raises(ConfigError, match=f"'{method}'.*supported: unquantized bfloat16"):
        refuse_quantization(config)
    refuse_quantization(config, supported={method})


@pytest.mark.parametrize("config", [{}, {"quantization_config": None}, {"quantization_config": {}}])
def test_no_quantization(config: dict[str, object]) -> None:
    assert quantization_method(config) is None
    refuse_quantization(config)


def test_fields() -> None:
    config: dict[str, object] = {"i": 4, "f": 1, "whole": 4096.0, "b": False, "o": {}, "null": None}
    assert int_field(config, "i") == 4
    assert int_field(config, "whole") == 4096
    assert int_field(config, "null", default=7) == 7
    assert int_field(config, "gone", default=7) == 7
    assert float_field(config, "f") == 1.0
    assert not bool_field(config, "b", default=True)
    assert bool_field(config, "gone", default=True)
    assert object_field(config, "null") == {}
    with pytest.raises(ConfigError, match=r"config\.json: gone is missing"):
        int_field(config, "gone")
    with pytest.raises(ConfigError, match="gone is missing"):
        float_field(config, "null", where="gone is missing")


@given(
    st.one_of(st.text(), st.booleans(), st.integers(max_value=0), st.just(0.5), st.lists(st.none()))
)
def test_int_field_refuses_everything_else(value: object) -> None:
    with pytest.raises(ConfigError, match="expected an integer >= 1"):
        int_field({"n": value}, "n")


@pytest.mark.parametrize("value", ["1", True, -1.0, float("nan"), float("inf"), []])
def test_float_field_refuses_everything_else(value: object) -> None:
    with pytest.raises(ConfigError, match="expected a number >= 0"):
        float_field({"n": value}, "n")


def test_config_side_imports_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "for name in ('numpy', 'tokenizers', 'torch', 'cupy'): sys.modules[name] = None\n"
        "import pegainfer_core.weights as weights\n"
        "weights.rope_config({'rope_theta': 1e6}, 128).inverse_frequencies()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_every_public_name_resolves() -> None:
    for name in weights.__all__:
        assert getattr(weights, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = weights.nothing
