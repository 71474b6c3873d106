"""The plan: limits follow the model, the pool and the flags, and contradictions are named."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from pegainfer_qwen3.config import plan_qwen3

from pegainfer_core.engine.plan_limits import DEFAULT_POOL_BYTES
from pegainfer_core.weights import ConfigError
from plugins.pegainfer_qwen3.tests.stepper import launch_context
from plugins.pegainfer_qwen3.tests.test_config import changed

if TYPE_CHECKING:
    from pathlib import Path

    from pegainfer_core.contract import ServePlan

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 2,
    "vocab_size": 300,
    "max_position_embeddings": 4096,
}


def plan(path: Path, changes: dict[str, object], **options: object) -> ServePlan:
    (path / "config.json").write_text(json.dumps(changed(**changes)))
    return plan_qwen3(launch_context(path, **options))


def test_small_models_serve_their_whole_context(tmp_path: Path) -> None:
    made = plan(tmp_path, SMALL)
    assert made.max_model_len == 4096
    assert made.num_pages is not None
    assert made.num_pages * made.page_tokens >= 4 * 4096
    assert (made.backend, made.vocab_size, made.notes) == ("numpy", 300, [])
    assert made == plan(tmp_path, SMALL), "equal input, equal plan"


def test_a_pool_too_small_for_the_context_lowers_it_and_says_so(tmp_path: Path) -> None:
    made = plan(tmp_path, {})
    token_bytes = 28 * 2 * 8 * 128 * 2
    assert made.num_pages == DEFAULT_POOL_BYTES // (16 * token_bytes)
    assert made.max_model_len == made.num_pages * 16 < 40960
    (note,) = made.notes
    assert f"limited to {made.max_model_len} tokens (the model allows 40960)" in note
    assert "--max-model-len" in note


def test_an_asked_context_gets_the_pages_it_needs(tmp_path: Path) -> None:
    made = plan(tmp_path, {}, max_model_len=40_000)
    assert made.max_model_len == 40_000
    assert made.num_pages == 2500
    assert not made.notes


@pytest.mark.parametrize("page_tokens", [16, 32, 64])
def test_given_pages_are_taken(tmp_path: Path, page_tokens: int) -> None:
    made = plan(tmp_path, SMALL, num_kv_pages=10, kv_page_size=page_tokens)
    assert (made.num_pages, made.max_model_len) == (10, 10 * page_tokens)
    assert made.notes


def test_yarn_extends_the_original_context(tmp_path: Path) -> None:
    made = plan(tmp_path, SMALL | {"rope_scaling": YARN, "max_position_embeddings": 40960})
    assert made.max_model_len == 131_072
    linear = {"rope_scaling": {"type": "linear", "factor": 2.0}}
    assert plan(tmp_path, SMALL | linear).max_model_len == 8192


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_model_len": 4097}, "--max-model-len 4097 must be from 2 to 4096"),
        ({"max_model_len": 0}, "--max-model-len 0 must be from 2 to 4096"),
        ({"max_model_len": 200, "num_kv_pages": 12}, "needs 13 KV pages .* --num-kv-pages is 12"),
        ({"num_kv_pages": 0}, "--num-kv-pages 0"),
        ({"max_prefill_tokens": 0}, "--max-prefill-tokens 0"),
        ({"itl_target_ms": 0.0}, "--itl-target-ms 0.0 must be more than 0"),
        ({"backend": "cuda"}, "--backend cuda"),
    ],
)
def test_impossible_options_are_named(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(tmp_path, SMALL, **options)


def test_larger_models_take_fewer_prompt_tokens_a_step(tmp_path: Path) -> None:
    small = plan(tmp_path, SMALL).max_prefill_tokens
    medium = plan(tmp_path, {}).max_prefill_tokens
    large = plan(tmp_path, {"hidden_size": 5120, "intermediate_size": 25600}).max_prefill_tokens
    assert small > medium > large >= 8
    assert plan(tmp_path, {}, max_prefill_tokens=7).max_prefill_tokens == 7


def test_a_target_between_tokens_is_none_or_in_seconds(tmp_path: Path) -> None:
    assert plan(tmp_path, SMALL).itl_target_s is None
    assert plan(tmp_path, SMALL, itl_target_ms=25).itl_target_s == 0.025


def test_planning_imports_nothing_heavy(tmp_path: Path) -> None:
    plan(tmp_path, SMALL)
    code = (
        "import sys; sys.modules.update({name: None for name in ('numpy', 'cupy', 'torch')}); "
        "from pegainfer_core.contract import LaunchContext; "
        "from pegainfer_qwen3.plugin import Qwen3Family; "
        f"context = LaunchContext(model_dir={str(tmp_path)!r}, family='qwen3', entry_point='x'); "
        "assert Qwen3Family().plan(context).max_model_len == 4096"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
