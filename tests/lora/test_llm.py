"""Adapters of the offline API."""

from __future__ import annotations

from pathlib import Path

import pytest

from pegainfer_core import LLM
from pegainfer_core.contract import AdapterError, SamplingParams
from pegainfer_core.llm import PromptError
from pegainfer_core.plugin import HostSettings, PluginHost
from pegainfer_core.testing.tiny import tiny_adapter, tiny_qwen3

PARAMS = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
PROMPT = list(range(9))


def test_offline(tmp_path: Path) -> None:
    model = tiny_qwen3(tmp_path / "model", hidden=64, intermediate=64, seed=1)
    folders = [tiny_adapter(tmp_path / name, model, seed=len(name)) for name in ("x", "yy")]
    host = PluginHost.load(HostSettings(allowed=frozenset({"qwen3"}), strict=True))
    with LLM(model, host=host, backend="numpy", max_loras=2, lora=[f"x={folders[0]}"]) as llm:

        def tokens(lora: str | None) -> list[int]:
            (output,) = llm.generate([PROMPT], PARAMS, use_tqdm=False, lora=lora)
            return output.token_ids

        base, first = tokens(None), tokens("x")
        with pytest.raises(PromptError, match="no LoRA adapter named 'y'"):
            tokens("y")
        llm.load_lora("y", folders[1])
        assert len({tuple(found) for found in (base, first, tokens("y"))}) == 3
        llm.load_lora("x", folders[1], replace=True)
        assert tokens("x") == tokens("y")
        llm.unload_lora("y")
        with pytest.raises(AdapterError, match="'y'"):
            llm.unload_lora("y")
        assert tokens(None) == base
