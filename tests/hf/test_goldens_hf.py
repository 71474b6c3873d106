"""Against live transformers: the goldens are still its answers, also for other prompts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pegainfer_core.testing.tiny import edit_config, row, script, table_model, tiny_qwen3
from tests.hf.cases import ALL_CASES, build
from tests.hf.gate import compare, compare_greedy
from tests.hf.golden import load
from tests.hf.reference_qwen3 import ReferenceQwen3

if TYPE_CHECKING:
    from pegainfer_core.testing.tiny.folder import JsonObject

pytestmark = pytest.mark.hf


@pytest.mark.parametrize("case", ALL_CASES)
def test_goldens_made_anew(case: str, tmp_path: Path) -> None:
    from tests.hf.make_goldens import make

    committed = load(case)
    new = make(case, tmp_path / case, committed.prompts)
    assert new.weights_sha256 == committed.weights_sha256
    for length, golden in committed.prompts.items():
        again = new.prompts[length]
        np.testing.assert_array_equal(again.rows, golden.rows)
        np.testing.assert_array_equal(again.greedy, golden.greedy)
        np.testing.assert_allclose(again.logits, golden.logits, rtol=0, atol=1e-4)
        np.testing.assert_allclose(again.gap, golden.gap, rtol=0, atol=2e-4)
        np.testing.assert_allclose(again.greedy_gap, golden.greedy_gap, rtol=0, atol=2e-4)
        assert again.bf16_error == pytest.approx(golden.bf16_error, rel=0.2)


@pytest.mark.parametrize("case", ["gqa2", "tied", "yarn", "linear", "sharded"])
def test_reference_for_more_lengths(case: str, tmp_path: Path) -> None:
    from tests.hf.transformers_run import TransformersModel

    build(case, tmp_path / case)
    theirs = TransformersModel(tmp_path / case)
    ours = ReferenceQwen3(tmp_path / case)
    rng = np.random.default_rng(0)
    for num_tokens in (1, 2, 15, 16, 17, 31, 33, 64, 200, 700):
        prompt = rng.integers(0, 1000, num_tokens)
        np.testing.assert_allclose(ours.logits(prompt), theirs.logits(prompt), rtol=0, atol=3e-4)


def rope_form(form: str) -> Callable[[JsonObject], object]:
    default: JsonObject = {"rope_type": "default", "rope_theta": 500_000}
    forms: dict[str, JsonObject] = {
        "a": {"rope_theta": 500_000},
        "b": {"rope_parameters": default},
        "c": {"rope_theta": 500_000, "rope_scaling": None},
        "d": {"rope_scaling": default},
        "j": {"rope_theta": 10_000, "rope_parameters": default},
    }

    def edit(config: JsonObject) -> None:
        config.pop("rope_parameters")
        config.update(forms[form])

    return edit


@pytest.mark.parametrize("form", ["a", "b", "c", "d", "j"])
def test_transformers_reads_theta_in_every_form(form: str, tmp_path: Path) -> None:
    """Case C03: the committed golden is the right value for each of these spellings."""
    from tests.hf.transformers_run import TransformersModel

    build("theta_500k", tmp_path)
    edit_config(tmp_path, rope_form(form))
    prompt = load("theta_500k").prompts[130]
    theirs = TransformersModel(tmp_path)
    assert compare(theirs.logits(prompt.prompt), prompt).passed
    (greedy,), _ = theirs.greedy([prompt.prompt], prompt.greedy.size)
    assert compare_greedy(greedy.tolist(), prompt).passed


@pytest.mark.parametrize("key", ["type", "rope_type"])
def test_transformers_reads_yarn_in_both_forms(key: str, tmp_path: Path) -> None:
    from tests.hf.transformers_run import TransformersModel

    build("yarn", tmp_path)
    scaling = {key: "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
    edit_config(tmp_path, lambda config: config.update(rope_scaling=scaling))
    prompt = load("yarn").prompts[130]
    assert compare(TransformersModel(tmp_path).logits(prompt.prompt), prompt).passed


def test_table_model(tmp_path: Path) -> None:
    from tests.hf.transformers_run import TransformersModel

    table = script("@", ["A", 260, "Z", 256]) | {ord("n"): row({"a": -0.5, "b": 2.25}, others=-5)}
    table_model(tmp_path, table)
    theirs = TransformersModel(tmp_path)
    logits = theirs.logits(np.array([ord("@"), ord("n"), ord("A"), 7]))
    expected = np.zeros((4, 1024), np.float32)
    expected[0, ord("A")] = expected[2, 260] = 40
    expected[1] = -5
    expected[1, [ord("a"), ord("b")]] = -0.5, 2.25
    np.testing.assert_allclose(logits, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("fault", ["missing", "unexpected"])
def test_a_checkpoint_that_does_not_fit_is_refused(fault: str, tmp_path: Path) -> None:
    from tests.hf.transformers_run import TransformersModel

    tiny_qwen3(tmp_path, layers=2)
    layers = 3 if fault == "missing" else 1
    edit_config(tmp_path, lambda config: config.update(num_hidden_layers=layers))
    with pytest.raises(RuntimeError, match=f"{fault}_keys"):
        TransformersModel(tmp_path)
