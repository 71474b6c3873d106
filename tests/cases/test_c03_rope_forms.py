"""C03: one RoPE base, written in every form that releases use, gives one model.

Seen elsewhere: a base that stands where the loader does not look falls back to 10000 without a
word, or an entry that only says `default` is taken for YaRN. Short prompts hide both.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pegainfer_core.testing.tiny import edit_config
from pegainfer_core.weights import ConfigError
from tests.cases.answers import assert_from_logits, score_prompt
from tests.cases.conftest import F3, LoadLLM
from tests.hf import cases, golden

Config = dict[str, object]

THETA = 500_000
DEFAULT = {"rope_type": "default", "rope_theta": THETA}
PROMPT = golden.load(F3).prompts[130]


def forms(**keys: object) -> Callable[[Config], None]:
    """Write the RoPE settings as these top-level keys and no others."""

    def edit(config: Config) -> None:
        del config["rope_parameters"]
        config.update(keys)

    return edit


def inside_text_config(config: Config) -> None:
    config["text_config"] = {"rope_parameters": config.pop("rope_parameters")}


def all_inside_text_config(config: Config) -> None:
    inner = dict(config)
    config.clear()
    config.update(model_type="qwen3", text_config=inner)


FORMS = {
    "a": forms(rope_theta=THETA),
    "b": forms(rope_parameters=DEFAULT),
    "c": forms(rope_theta=THETA, rope_scaling=None),
    "d": forms(rope_scaling=DEFAULT),
    "e": inside_text_config,
    "e, with all the rest": all_inside_text_config,
    "older key of d": forms(rope_scaling={"type": "default", "rope_theta": THETA}),
    "empty scaling": forms(rope_theta=THETA, rope_scaling={}),
    "no type": forms(rope_parameters={"rope_theta": THETA}),
    "null type": forms(rope_parameters={"rope_type": None, "rope_theta": THETA}),
    "both objects": forms(rope_parameters=DEFAULT, rope_scaling={**DEFAULT, "type": "default"}),
    "outer base is another model's": lambda config: config.update(
        rope_theta=10_000, text_config={"rope_parameters": config.pop("rope_parameters")}
    ),
    # j, the documented winner: the key inside the object.
    "j": forms(rope_theta=10_000, rope_parameters=DEFAULT),
    "j, older object": forms(rope_theta=10_000, rope_scaling=DEFAULT),
}


def build(folder: Path, case: str, edit: Callable[[Config], object]) -> Path:
    cases.build(case, folder)
    edit_config(folder, edit)
    return folder


def test_the_reference_form_is_transformers_own(f3: Path, load: LoadLLM) -> None:
    entries = score_prompt(load(f3), PROMPT.prompt.tolist())
    for index, position in enumerate(PROMPT.rows.tolist()[:-1]):
        assert_from_logits(entries[position], PROMPT.logits[index])


@pytest.mark.parametrize("form", FORMS)
def test_a_to_e_and_j_are_one_model(form: str, f3: Path, tmp_path: Path, load: LoadLLM) -> None:
    prompt = PROMPT.prompt.tolist()
    written = build(tmp_path / "m", F3, FORMS[form])
    assert score_prompt(load(written), prompt) == score_prompt(load(f3), prompt)


@pytest.mark.parametrize(
    "edit",
    [
        forms(rope_theta=10_000),
        # Nothing at all: the documented default of the config format.
        forms(),
        # j, the other way round: the winner is not simply the larger one.
        forms(rope_theta=THETA, rope_parameters={"rope_type": "default", "rope_theta": 10_000}),
    ],
)
def test_f_another_base_is_seen(
    edit: Callable[[Config], None], f3: Path, tmp_path: Path, load: LoadLLM
) -> None:
    prompt = PROMPT.prompt.tolist()
    right = score_prompt(load(f3), prompt)
    other = score_prompt(load(build(tmp_path / "m", F3, edit)), prompt)
    for position in range(32, len(prompt) - 1):
        ours, theirs = right[position], other[position]
        known = dict(zip(ours.top_token_ids, ours.top_logprobs, strict=True))
        moved = [
            abs(value - known[token])
            for token, value in zip(theirs.top_token_ids, theirs.top_logprobs, strict=True)
            if token in known
        ]
        assert max(moved) > 0.05, position
    control = golden.load("theta_10k").prompts[130]
    entries = score_prompt(load(tmp_path / "m"), control.prompt.tolist())
    for index, position in enumerate(control.rows.tolist()[:-1]):
        assert_from_logits(entries[position], control.logits[index])


def test_g_yarn_under_either_key(tmp_path: Path, load: LoadLLM) -> None:
    expected = golden.load("yarn").prompts[130]
    prompt = expected.prompt.tolist()
    scaling = {"factor": 4.0, "original_max_position_embeddings": 1024}
    written = {
        "type": {"rope_theta": 1e6, "rope_scaling": {"type": "yarn", **scaling}},
        "rope_type": {"rope_theta": 1e6, "rope_scaling": {"rope_type": "yarn", **scaling}},
        "new": {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, **scaling}},
    }
    answers = []
    for name, keys in written.items():

        def edit(config: Config, keys: Config = keys) -> None:
            del config["rope_theta"], config["rope_scaling"]
            config.update(keys)

        answers.append(score_prompt(load(build(tmp_path / name, "yarn", edit)), prompt))
    assert answers[0] == answers[1] == answers[2]
    for index, position in enumerate(expected.rows.tolist()[:-1]):
        assert_from_logits(answers[0][position], expected.logits[index])


@pytest.mark.parametrize(
    "edit",
    [
        forms(rope_parameters={"rope_type": "zzz", "rope_theta": THETA}),
        forms(rope_theta=THETA, rope_scaling={"type": "zzz"}),
        forms(rope_theta=THETA, text_config={"rope_scaling": {"rope_type": "zzz"}}),
    ],
)
def test_i_an_unknown_type_is_a_load_error(
    edit: Callable[[Config], None], tmp_path: Path, load: LoadLLM
) -> None:
    with pytest.raises(ConfigError, match="'zzz'; supported are default, linear, yarn"):
        load(build(tmp_path / "m", F3, edit))


def test_two_objects_that_differ_are_a_load_error(tmp_path: Path, load: LoadLLM) -> None:
    edit = forms(rope_parameters=DEFAULT, rope_scaling={**DEFAULT, "rope_theta": 10_000})
    with pytest.raises(ConfigError, match="rope_parameters and rope_scaling are both given"):
        load(build(tmp_path / "m", F3, edit))
