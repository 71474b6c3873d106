"""The page on decoders names what exists, and its code does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pegainfer_core.backend import (
    AttentionShape,
    AttentionWeights,
    DType,
    KvLayout,
    NumpyBackend,
    StepMetadata,
    Tensor,
)
from pegainfer_core.testing import tiny_qwen3
from pegainfer_core.weights import RopeConfig
from tests.docs.pages import PLUGIN_DOCS, ROOT, blocks
from tests.docs.surface import PACKAGES, public_names

PAGE = PLUGIN_DOCS / "decoder.md"
QWEN3 = ROOT / "plugins" / "pegainfer_qwen3" / "src" / "pegainfer_qwen3"
SHAPE = AttentionShape(num_heads=4, num_kv_heads=2, head_dim=8, scale=1.0, norm_eps=1e-6)
HIDDEN, PAGE_TOKENS = 24, 16


def defined(number: int) -> dict[str, Any]:
    """What one of the page's blocks of Python defines."""
    block, namespace = blocks(PAGE, "python")[number], dict[str, Any]()
    exec(compile(block.text, block.name, "exec", dont_inherit=True), namespace)
    return namespace


def test_the_table_names_qwen3s_files_and_cores_names() -> None:
    rows = re.findall(r"^\| `(\w+\.py)` \|.*\| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    files = {path.name for path in QWEN3.glob("*.py")} - {"__init__.py"}
    assert {name for name, _ in rows} == files
    public = {name for package in PACKAGES for name in public_names(package)}
    named = {name for _, cell in rows for name in re.findall(r"`(\w+)`", cell)}
    assert len(named) > 20
    assert named <= public


def test_every_step_of_the_engine_is_one_of_qwen3s() -> None:
    text = PAGE.read_text("utf-8")
    steps = text[text.index("1. `open_parameters`") : text.index("## Where your model differs")]
    engine = (QWEN3 / "engine.py").read_text("utf-8")
    calls = [name for name in re.findall(r"`([\w.]+)", steps) if name != "freeze"]
    assert len(calls) > 10
    for call in calls:
        assert call.rpartition(".")[2] in engine, call


class Layer:
    """One layer's inputs and outputs on a backend of its own."""

    def __init__(self) -> None:
        self.backend = NumpyBackend()
        layout = KvLayout(
            num_layers=2,
            num_kv_heads=SHAPE.num_kv_heads,
            head_dim=SHAPE.head_dim,
            page_tokens=PAGE_TOKENS,
            dtype=DType.FLOAT32,
        )
        self.kv = self.backend.kv_pool(layout, 4)
        self.backend.clear_pages(self.kv)
        metadata = StepMetadata(max_tokens=8, max_rows=2, max_pages=8, page_tokens=PAGE_TOKENS)
        metadata.add_row([3, 4, 5], 14, [2, 4], samples=True)
        metadata.finish(0)
        self.batch = self.backend.upload(metadata)
        self.workspace = self.backend.workspace(8, 64)
        rope = RopeConfig(rope_type="default", theta=100.0, rotary_dim=SHAPE.head_dim)
        self.rope = self.backend.rope_table(rope, 64, DType.FLOAT32)
        self.qkv = self.workspace.buffer("qkv", SHAPE.qkv_width, DType.FLOAT32)
        self.hidden, self.input_norm = self.random(8, HIDDEN), self.random(HIDDEN)
        self.weight = self.random(SHAPE.qkv_width, HIDDEN)

    def random(self, *shape: int) -> Tensor:
        values = np.random.default_rng(shape).standard_normal(shape)
        return self.backend.adopt(values.astype(np.float32), DType.FLOAT32)

    def attended(self) -> bytes:
        """What attention makes of the queries and of the pages."""
        out = self.workspace.buffer("attended", SHAPE.query_width, DType.FLOAT32)
        self.backend.ops.attend(self.batch, self.qkv, SHAPE, self.kv, 1, out, self.workspace)
        return self.backend.to_host(out, 3).tobytes()


def test_what_comes_before_attention_is_the_wide_op_without_head_norms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before_attention = defined(0)["before_attention"]
    own, wide, normed = Layer(), Layer(), Layer()
    before_attention(
        own.backend.ops, own.batch, own.hidden, own.random(8, HIDDEN),
        SimpleNamespace(input_norm=own.input_norm, qkv=own.weight),
        SHAPE, own.rope, own.kv, 1, own.qkv,
    )  # fmt: skip
    monkeypatch.setattr(wide.backend.ops, "head_norm", lambda *_: None)
    for layer in (wide, normed):
        head_norm = layer.random(SHAPE.num_heads + SHAPE.num_kv_heads, SHAPE.head_dim)
        weights = AttentionWeights(layer.input_norm, layer.weight, head_norm, layer.hidden)
        layer.backend.ops.norm_qkv_rope_write(
            layer.batch, layer.hidden, weights, SHAPE, layer.rope, layer.kv, 1, layer.qkv,
            layer.workspace,
        )  # fmt: skip
    assert own.attended() == wide.attended() != normed.attended()


@pytest.mark.hf
def test_the_comparison_with_transformers_passes_for_qwen3(tmp_path: Path) -> None:
    compare = defined(1)["test_greedy_tokens_are_those_of_transformers"]
    sizes = {"hidden": 64, "intermediate": 96, "head_dim": 16, "vocab": 300}
    compare(tiny_qwen3(tmp_path / "right", **sizes))  # type: ignore[arg-type]
