"""Nobody pays for forms who asks for none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from pegainfer_core import LLM, SamplingParams, StructuredOutput
from pegainfer_core.llm import PromptError
from pegainfer_core.plugin import HostSettings, PluginHost
from pegainfer_core.testing.tiny import tiny_qwen3

IMPORTS = """
import sys
import pegainfer_server.app, pegainfer_server.lifecycle
import pegainfer_core.engine.worker, pegainfer_core.grammar, pegainfer_qwen3.engine
from pegainfer_core.engine import open_grammars
sys.exit("llguidance" in sys.modules)
"""


def test_the_library_is_loaded_at_the_first_need() -> None:
    assert subprocess.run([sys.executable, "-c", IMPORTS], check=False).returncode == 0


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder = tiny_qwen3(tmp_path_factory.mktemp("tiny") / "model", vocab=300)
    host = PluginHost.load(HostSettings(allowed=frozenset({"qwen3"}), strict=True))
    with LLM(folder, host=host, backend="numpy", max_num_seqs=4) as made:
        yield made


def chosen(*texts: str) -> SamplingParams:
    form = StructuredOutput(kind="regex", text="|".join(texts))
    return SamplingParams(max_tokens=20, structured=form, seed=1)


def test_offline_answers_have_their_form(llm: LLM) -> None:
    plain = SamplingParams(max_tokens=12, temperature=0)
    (alone,) = llm.generate(["a"], plain, use_tqdm=False)
    outputs = llm.generate(
        ["a", "a", "b"], [chosen("left", "right"), plain, chosen("up")], use_tqdm=False
    )
    assert outputs[0].text in ("left", "right") and outputs[2].text == "up"
    assert [output.finish_reason for output in outputs[::2]] == ["stop", "stop"]
    assert outputs[1].token_ids == alone.token_ids


def test_offline_refusals_name_the_prompt_and_keep_the_others(llm: LLM) -> None:
    with pytest.raises(PromptError, match="prompt 1: structured cannot be followed") as caught:
        llm.generate(["a", "a"], [chosen("up"), chosen("(a")], use_tqdm=False)
    assert caught.value.outputs[0] is not None and caught.value.outputs[0].text == "up"
    wrong = StructuredOutput(kind="ebnf", text="x")  # type: ignore[arg-type]
    with pytest.raises(PromptError, match="no kind 'ebnf'"):
        llm.generate(["a"], SamplingParams(structured=wrong), use_tqdm=False)
