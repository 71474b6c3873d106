"""C04: the head's width is the one that the config states, in weights and in KV pages.

Seen elsewhere: `hidden_size / num_attention_heads` is taken although `head_dim` says otherwise, the
pages get that width, and writes land in memory that belongs to something else, without a crash.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pegainfer_qwen3.config import parse_config
from pegainfer_qwen3.engine import LoadedModel
from pegainfer_qwen3.state import kv_layout
from pegainfer_qwen3.weights import tensor_specs

from pegainfer_core.backend import DType
from pegainfer_core.testing.tiny import edit_config, tiny_qwen3
from pegainfer_core.weights import Checkpoint, ConfigError, load_config
from tests.cases.answers import assert_from_logits, greedy, run, score_prompt
from tests.cases.conftest import LoadLLM
from tests.cases.loaded_models import digest, parameters, values
from tests.hf import cases, golden

CONFIG: dict[str, object] = {
    "model_type": "qwen3",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_hidden_layers": 2,
}
#: How the config says it, what the width is, and under which name goldens exist.
SPELLINGS = {
    "stated": (32, "head_dim_32", lambda config: None),
    "absent": (16, "head_dim_16", lambda config: config.pop("head_dim")),
    "null": (16, "head_dim_16", lambda config: config.update(head_dim=None)),
}
TOKEN_LAYER_BYTES = {32: 256, 16: 128}


@pytest.fixture(params=SPELLINGS)
def spelled(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, int, str]:
    """A checkpoint, its head width, and its golden."""
    head_dim, case, edit = SPELLINGS[request.param]
    folder = cases.build(case, tmp_path / "m")
    edit_config(folder, edit)
    config = load_config(folder)
    assert {**CONFIG, **config, "head_dim": 32} == {**config, **CONFIG}, "the case's own sizes"
    return folder, head_dim, case


def test_shapes(spelled: tuple[Path, int, str]) -> None:
    folder, head_dim, _ = spelled
    specs = tensor_specs(load_config(folder))
    query, key = 4 * head_dim, 2 * head_dim
    assert {32: (128, 64), 16: (64, 32)}[head_dim] == (query, key)
    with Checkpoint(folder) as checkpoint:
        for layer in range(2):
            for name, shape in {
                "q_proj": (query, 64),
                "k_proj": (key, 64),
                "v_proj": (key, 64),
                "o_proj": (64, query),
            }.items():
                full = f"model.layers.{layer}.self_attn.{name}.weight"
                assert specs[full].shape == shape == checkpoint.shape(full)


def test_kv_bytes(spelled: tuple[Path, int, str]) -> None:
    folder, head_dim, _ = spelled
    layout = kv_layout(parse_config(load_config(folder)), 16, DType.BFLOAT16)
    assert layout.token_layer_bytes == TOKEN_LAYER_BYTES[head_dim]
    assert layout.page_bytes == 16 * 2 * TOKEN_LAYER_BYTES[head_dim]


def test_kv_bytes_of_a_running_engine(
    tmp_path: Path, load: LoadLLM, loaded: list[LoadedModel]
) -> None:
    folder = tiny_qwen3(tmp_path, **cases.CASES["head_dim_32"], dtype="bfloat16")
    load(folder, num_kv_pages=9)
    (model,) = loaded
    assert values(model.kv.pages).nbytes == (9 + 1) * 16 * 2 * 256, "the padding page beside nine"


def test_logits_are_transformers_own(spelled: tuple[Path, int, str], load: LoadLLM) -> None:
    folder, _, case = spelled
    llm = load(folder)
    for expected in golden.load(case).prompts.values():
        prompt = expected.prompt.tolist()
        (output,) = run(llm, [prompt], greedy(64))
        assert output.token_ids == expected.greedy.tolist()
        entries = score_prompt(llm, prompt)
        for index, position in enumerate(expected.rows.tolist()[:-1]):
            assert_from_logits(entries[position], expected.logits[index])


def test_a_thousand_decode_steps_write_to_their_own_pages_only(
    tmp_path: Path, load: LoadLLM, loaded: list[LoadedModel]
) -> None:
    llm = load(cases.build("head_dim_32", tmp_path / "m"), num_kv_pages=128)
    (model,) = loaded
    before = digest(model)
    run(llm, [[7, 8, 9]], greedy(1001))
    assert llm.metrics().num_steps >= 1001
    assert digest(model) == before
    assert len({id(values(tensor)) for tensor in parameters(model.weights)}) >= 2 * 6 + 3
    # 3 + 1000 tokens lie in 63 pages, beside the padding page that the warm-up wrote to.
    used = np.abs(values(model.kv.pages)).reshape(129, -1).max(axis=1) > 0
    assert used[1:].sum() == 63


@pytest.mark.parametrize(("stated", "message"), [(16, r"\(128, 64\)"), (64, r"\(128, 64\)")])
def test_a_width_that_the_weights_do_not_have_is_refused(
    stated: int, message: str, tmp_path: Path, load: LoadLLM
) -> None:
    folder = cases.build("head_dim_32", tmp_path / "m")
    edit_config(folder, lambda config: config.update(head_dim=stated))
    with pytest.raises(ConfigError, match=rf"q_proj.weight has shape {message}"):
        load(folder)
