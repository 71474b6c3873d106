"""The goldens without torch: a second implementation agrees, and mistakes do not pass."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from pegainfer_core.testing.tiny import edit_config
from pegainfer_core.weights import load_config, rope_config
from tests.hf.cases import ALL_CASES, CASES, GOLDEN_DIR, NUM_GREEDY_TOKENS, PROMPT_LENGTHS, build
from tests.hf.gate import compare, compare_greedy
from tests.hf.golden import PromptGolden, load, top2, weights_digest
from tests.hf.reference_qwen3 import ReferenceQwen3

FLOAT32 = [case for case in CASES if CASES[case].get("dtype") != "bfloat16"]
BFLOAT16 = [case for case in CASES if case not in FLOAT32]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """Builds each case's checkpoint once."""
    root = tmp_path_factory.mktemp("tiny")

    def folder(case: str) -> Path:
        return root / case if (root / case).exists() else build(case, root / case)

    yield folder


def test_every_case_has_a_golden_and_no_golden_is_left_over() -> None:
    assert sorted(path.stem for path in GOLDEN_DIR.iterdir()) == sorted(ALL_CASES)
    assert max(path.stat().st_size for path in GOLDEN_DIR.iterdir()) <= 400_000


@pytest.mark.parametrize("case", ALL_CASES)
def test_weights_are_those_of_the_golden(case: str, folders: Callable[[str], Path]) -> None:
    golden = load(case)
    assert weights_digest(folders(case)) == golden.weights_sha256
    assert tuple(golden.prompts) == PROMPT_LENGTHS
    for length, prompt in golden.prompts.items():
        assert prompt.prompt.size == prompt.argmax.size == prompt.gap.size == length
        assert prompt.greedy.size == prompt.greedy_gap.size == NUM_GREEDY_TOKENS
        assert prompt.logits.shape == (prompt.rows.size, 1000)
        # Rounding decides nothing on the greedy path, and the path is no short loop.
        assert prompt.greedy_gap.min() > 0.01
        assert len(set(prompt.greedy.tolist())) >= 12


@pytest.mark.parametrize("case", CASES)
def test_reference_in_float(case: str, folders: Callable[[str], Path]) -> None:
    model = ReferenceQwen3(folders(case), rounds=False)
    for prompt in load(case).prompts.values():
        logits = model.logits(np.concatenate([prompt.prompt, prompt.greedy[:-1]]))
        # As if float32: the golden of a bfloat16 checkpoint is a float32 run of its weights.
        result = compare(logits[: prompt.prompt.size], as_float32(prompt))
        assert result.passed, result
        # Each greedy token follows from those before it: so does the whole free run.
        best, gap = top2(logits[prompt.prompt.size - 1 :])
        assert compare_greedy(best.tolist(), prompt).passed
        np.testing.assert_allclose(gap, prompt.greedy_gap, atol=4e-4)


@pytest.mark.parametrize("case", BFLOAT16)
def test_reference_in_bfloat16(case: str, folders: Callable[[str], Path]) -> None:
    model = ReferenceQwen3(folders(case))
    assert model.rounds
    for prompt in load(case).prompts.values():
        result = compare(model.logits(prompt.prompt), prompt)
        assert result.passed, result
        # The bound would be meaningless if rounding did not cost about what it costs there.
        assert result.relative_error > 0.5 * prompt.bf16_error > 0.002


@pytest.mark.parametrize("case", CASES)
def test_rope_settings_of_the_engine(case: str, folders: Callable[[str], Path]) -> None:
    """The engine's own reading of config.json gives the frequencies that the goldens need."""
    model = ReferenceQwen3(folders(case), rounds=False)
    rope = rope_config(load_config(folders(case)), model.head_dim)
    assert rope.rotary_dim == model.head_dim
    np.testing.assert_allclose(rope.inverse_frequencies(), model.inverse_frequencies, rtol=1e-12)
    assert rope.attention_factor == pytest.approx(model.attention_factor)


def test_missing_head_dim_is_computed(tmp_path: Path) -> None:
    build("head_dim_16", tmp_path)
    edit_config(tmp_path, lambda config: config.pop("head_dim"))
    prompt = load("head_dim_16").prompts[37]
    assert compare(ReferenceQwen3(tmp_path).logits(prompt.prompt), prompt).passed


def test_the_test_prompt_can_see_a_wrong_theta(folders: Callable[[str], Path]) -> None:
    """Case C03 f: with base 10,000 every position from 32 on is clearly off."""
    assert load("theta_500k").weights_sha256 == load("theta_10k").weights_sha256
    prompt = load("theta_500k").prompts[130]
    right, wrong = (
        ReferenceQwen3(folders(case)).logits(prompt.prompt) for case in ("theta_500k", "theta_10k")
    )
    assert np.abs(right - wrong).max(axis=1)[32:].min() > 0.05


# ------------------------------------------------------------------ the gate has teeth


def rope_off(model: ReferenceQwen3) -> None:
    model.inverse_frequencies = np.zeros_like(model.inverse_frequencies)


def plain_rope(model: ReferenceQwen3) -> None:
    model.inverse_frequencies = 1e6 ** (-np.arange(0, 1, 2 / model.head_dim))


def no_attention_factor(model: ReferenceQwen3) -> None:
    model.attention_factor = 1.0


def other_theta(model: ReferenceQwen3) -> None:
    model.inverse_frequencies = 1e4 ** (-np.arange(0, 1, 2 / model.head_dim))


def unit_head_norms(model: ReferenceQwen3) -> None:
    for name, weight in model.weights.items():
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            model.weights[name] = np.ones_like(weight)


def no_attention_in_last_layer(model: ReferenceQwen3) -> None:
    last = model.config["num_hidden_layers"] - 1
    model.weights[f"model.layers.{last}.self_attn.o_proj.weight"] *= 0


def key_heads_in_turn(model: ReferenceQwen3) -> None:
    """Query head j reads key head j % num_key_value_heads, not j // group."""
    groups = model.config["num_attention_heads"] // model.config["num_key_value_heads"]
    order = np.arange(model.config["num_attention_heads"]).reshape(groups, -1).T.reshape(-1)
    for name, weight in model.weights.items():
        heads = (-1, model.head_dim)
        if name.endswith("q_proj.weight"):
            model.weights[name] = weight.reshape(*heads, weight.shape[-1])[order].reshape(
                weight.shape
            )
        elif name.endswith("o_proj.weight"):
            model.weights[name] = weight.reshape(len(weight), *heads)[:, order].reshape(
                weight.shape
            )


def other_eps(model: ReferenceQwen3) -> None:
    model.config["rms_norm_eps"] = 1e-6


MISTAKES: list[tuple[str, Callable[[ReferenceQwen3], None]]] = [
    *((case, rope_off) for case in ("gqa1", "gqa2", "tied", "bf16")),
    *((case, unit_head_norms) for case in ("gqa1", "gqa2", "tied", "bf16")),
    *((case, no_attention_in_last_layer) for case in ("gqa1", "gqa2", "tied", "bf16")),
    *((case, key_heads_in_turn) for case in ("gqa2", "bf16_tied")),
    *((case, other_eps) for case in ("tied", "gqa4")),
    ("theta_500k", other_theta),
    ("yarn", plain_rope),
    ("linear", plain_rope),
    ("yarn", no_attention_factor),
]


@pytest.mark.parametrize(
    ("case", "mistake"), MISTAKES, ids=lambda value: getattr(value, "__name__", value)
)
def test_gate_sees_a_mistake(
    case: str, mistake: Callable[[ReferenceQwen3], None], folders: Callable[[str], Path]
) -> None:
    prompt = load(case).prompts[37]
    model = ReferenceQwen3(folders(case))
    mistake(model)
    result = compare(model.logits(prompt.prompt), prompt)
    assert not result.passed
    # Not by a hair: far beyond what rounding does.
    assert result.relative_error > (3 * prompt.bf16_error or 1e-3)


@pytest.mark.parametrize("case", ["gqa2", "bf16"])
def test_gate_sees_one_wrong_position(case: str, folders: Callable[[str], Path]) -> None:
    """A stale cache row spoils one token; a median alone would not see it."""
    prompt = load(case).prompts[37]
    logits = ReferenceQwen3(folders(case)).logits(prompt.prompt)
    position = int(np.argmax(prompt.gap))
    assert compare(logits, prompt).passed
    logits[position] = logits[position - 1]
    result = compare(logits, prompt)
    assert not result.passed
    assert f"position {position}" in result.faults[-1]
    logits[position] = np.nan
    assert not compare(logits, prompt).passed


def test_gate_wants_all_logits() -> None:
    prompt = load("gqa2").prompts[5]
    with pytest.raises(ValueError, match="expected all positions"):
        compare(prompt.logits[-1:], prompt)


def test_greedy_gate() -> None:
    prompt = load("gqa2").prompts[5]
    tokens = prompt.greedy.tolist()
    assert compare_greedy(tokens, prompt).passed
    assert compare_greedy(tokens[:-1], prompt).faults == ("63 tokens instead of 64",)
    wrong = [*tokens[:-1], tokens[-1] + 1]
    assert compare_greedy(wrong, prompt).faults[0].startswith("token 63 is")


def as_float32(prompt: PromptGolden) -> PromptGolden:
    return PromptGolden(**{**vars(prompt), "dtype": "float32"})


def test_goldens_need_no_torch() -> None:
    script = (
        "import sys\n"
        "for name in ('torch', 'transformers'): sys.modules[name] = None\n"
        "from tests.hf import gate, golden, reference_qwen3\n"
        "assert golden.load('gqa2').prompts\n"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", script], check=True, cwd=root)
