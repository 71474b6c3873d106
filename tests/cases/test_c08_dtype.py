"""C08: type and sizes are read from the key and the level where the release wrote them.

Seen elsewhere: `dtype` is looked for under its old name only, or outside `text_config`, so the
model loads in float32 or with sizes of the config class; only memory or noise shows it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pegainfer_qwen3.engine import LoadedModel

from pegainfer_core.backend import DType
from pegainfer_core.contract import TokenLogprobs
from pegainfer_core.testing.tiny import edit_config, tiny_qwen3
from pegainfer_core.weights import ArraySource, Checkpoint, ConfigError, write_safetensors
from tests.cases.answers import score_prompt
from tests.cases.conftest import F3, LoadLLM
from tests.cases.loaded_models import parameters, values
from tests.hf import cases

Config = dict[str, object]
Edit = Callable[[Config], object]

PROMPT = np.random.default_rng(8).integers(5, 1000, 60).tolist()


def spelled(**keys: object) -> Edit:
    def edit(config: Config) -> None:
        del config["dtype"]
        config.update(keys)

    return edit


def wrap(config: Config) -> None:
    """All sizes inside `text_config`, as multimodal releases write them."""
    inner = dict(config)
    config.clear()
    config.update(model_type="qwen3", text_config=inner)


BFLOAT16 = {
    "dtype": spelled(dtype="bfloat16"),
    "torch_dtype": spelled(torch_dtype="bfloat16"),
    "torch_dtype with its module": spelled(torch_dtype="torch.bfloat16"),
    "inner dtype only": spelled(text_config={"dtype": "bfloat16"}),
    "inner torch_dtype only": spelled(text_config={"torch_dtype": "bfloat16"}),
    "neither": spelled(),
    "null": spelled(dtype=None, torch_dtype=None),
    # Contradictions: `dtype` wins over `torch_dtype`, the inner level over the outer one.
    "dtype wins": spelled(dtype="bfloat16", torch_dtype="float32"),
    "the inner level wins": spelled(dtype="float32", text_config={"dtype": "bfloat16"}),
    "also by its old name": spelled(dtype="float32", text_config={"torch_dtype": "bfloat16"}),
    "wrapped": wrap,
}
FLOAT32 = {
    "dtype wins": spelled(dtype="float32", torch_dtype="bfloat16"),
    "the inner level wins": spelled(dtype="bfloat16", text_config={"dtype": "float32"}),
}


def answer(folder: Path, load: LoadLLM, edit: Edit) -> list[TokenLogprobs]:
    cases.tiny_qwen3(folder, **cases.CASES[F3], dtype="bfloat16")
    edit_config(folder, edit)
    return score_prompt(load(folder), PROMPT)


@pytest.mark.parametrize("spelling", BFLOAT16)
def test_bfloat16_in_every_spelling(
    spelling: str, f3_bf16: Path, tmp_path: Path, load: LoadLLM, loaded: list[LoadedModel]
) -> None:
    found = answer(tmp_path / "m", load, BFLOAT16[spelling])
    (model,) = loaded
    held = list(parameters(model.weights))
    assert {tensor.dtype for tensor in held} == {DType.BFLOAT16}
    for tensor in held:
        bits = np.ascontiguousarray(values(tensor)).view(np.uint32)
        assert not (bits & 0xFFFF).any(), "values that need more than bfloat16"
    assert model.kv.layout.dtype is DType.BFLOAT16
    assert values(model.kv.pages).dtype == np.uint16, "two bytes a value"
    assert found == score_prompt(load(f3_bf16), PROMPT)


@pytest.mark.parametrize("spelling", FLOAT32)
def test_the_other_way_round(
    spelling: str, f3_bf16: Path, tmp_path: Path, load: LoadLLM, loaded: list[LoadedModel]
) -> None:
    found = answer(tmp_path / "m", load, FLOAT32[spelling])
    (model,) = loaded
    assert {tensor.dtype for tensor in parameters(model.weights)} == {DType.FLOAT32}
    assert values(model.kv.pages).dtype == np.float32
    assert found != score_prompt(load(f3_bf16), PROMPT), "the test can tell the types apart"


def test_neither_in_a_float32_checkpoint(
    tmp_path: Path, f3: Path, load: LoadLLM, loaded: list[LoadedModel]
) -> None:
    folder = cases.build(F3, tmp_path / "m")
    edit_config(folder, spelled())
    found = score_prompt(load(folder), PROMPT)
    assert loaded[0].weights.norm.dtype is DType.FLOAT32
    assert found == score_prompt(load(f3), PROMPT)


@pytest.mark.parametrize("value", ["bf16", "float8_e4m3fn", 16, "torch.int8"])
def test_an_unknown_type_is_a_load_error(value: object, tmp_path: Path, load: LoadLLM) -> None:
    with pytest.raises(ConfigError, match=r"supported are bfloat16, float16 and float32"):
        answer(tmp_path / "m", load, spelled(torch_dtype=value))


@pytest.mark.parametrize("prefix", ["model.language_model.", "language_model.model."])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_wrapped_config_and_names(prefix: str, dtype: str, tmp_path: Path, load: LoadLLM) -> None:
    """Sizes that differ from every default, so that a wrong level cannot go unseen."""
    sizes = {"hidden": 96, "intermediate": 160, "layers": 3, "heads": (6, 3), "head_dim": 24}
    flat = tiny_qwen3(tmp_path / "flat", **sizes, vocab=777, dtype=dtype, seed=5)
    wrapped = tiny_qwen3(tmp_path / "wrapped", **sizes, vocab=777, dtype=dtype, seed=5)
    edit_config(wrapped, wrap)
    with Checkpoint(wrapped) as checkpoint:
        tensors = {
            name.replace("model.", prefix, 1): checkpoint.read_f32(name)
            for name in checkpoint.names()
        }
    (wrapped / "model.safetensors").unlink()
    write_safetensors(wrapped, ArraySource(tensors, dtype))
    prompt = [token % 777 for token in PROMPT]
    assert score_prompt(load(wrapped), prompt) == score_prompt(load(flat), prompt)
