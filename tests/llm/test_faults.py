"""What goes wrong is named, early, and stops nobody else; what was started is stopped again."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pegainfer_core import LLM, SamplingParams
from pegainfer_core.contract import EngineError
from pegainfer_core.llm import PromptError
from pegainfer_core.plugin import SelectionError, UserFault
from pegainfer_core.text import TokenizerError
from pegainfer_core.weights import ConfigError
from tests.llm import table_plugin
from tests.llm.conftest import MakeLLM, script, table_host, write_table_model

GREEDY = SamplingParams(temperature=0, max_tokens=8)
ABC = script(64, 65, 66, 67, 256)
ENDLESS = {97: {97: 40.0}}


@pytest.mark.parametrize(
    ("prompts", "params", "message"),
    [
        (["@", ""], GREEDY, "prompt 1: the prompt has no tokens"),
        ([[64], [64, 1024]], GREEDY, "prompt 1: token id 1024 is outside the vocabulary of 1024"),
        ([[64], [-1]], GREEDY, "prompt 1: token id -1 is outside"),
        (
            [[64], [64] * 600],
            GREEDY,
            "prompt 1: the prompt has 600 tokens and 8 output tokens were asked for, but the "
            "context length is 512",
        ),
        (["@"], SamplingParams(temperature=-0.1), "prompt 0: temperature must be a number from 0"),
        (["@", "@"], [GREEDY, SamplingParams(top_k=-2)], "prompt 1: top_k must be -1, 0"),
        (["@", "a\ud800"], GREEDY, "prompt 1: text holds half of a surrogate pair"),
    ],
)
def test_found_before_anything_runs(
    make_llm: MakeLLM, prompts: list[str], params: SamplingParams, message: str
) -> None:
    llm = make_llm(ABC)
    with pytest.raises(PromptError) as caught:
        llm.generate(prompts, params, use_tqdm=False)
    assert str(caught.value).startswith(message)
    assert caught.value.outputs == []
    assert table_plugin.records == []
    assert llm.generate("@", GREEDY, use_tqdm=False)[0].text == "ABC"


@pytest.mark.parametrize(
    "prompts", [[1.5], [[64, 1.5]], [True], [[True]], [None], [b"@"], [[64, "A"]]]
)
def test_what_is_no_prompt(make_llm: MakeLLM, prompts: list[object]) -> None:
    with pytest.raises(TypeError, match="prompt 0 must be a text or a list of token ids"):
        make_llm(ABC).generate(prompts, GREEDY, use_tqdm=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("prompts", [None, 5])
def test_what_are_no_prompts(make_llm: MakeLLM, prompts: object) -> None:
    with pytest.raises(TypeError, match="prompts must be texts or lists of token ids"):
        make_llm(ABC).generate(prompts, GREEDY, use_tqdm=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("params", [{"max_tokens": 2}, [{"max_tokens": 2}], "greedy", 5])
def test_what_are_no_sampling_parameters(make_llm: MakeLLM, params: object) -> None:
    with pytest.raises(TypeError, match="must be a SamplingParams or a list of them, not"):
        make_llm(ABC).generate(["@"], params, use_tqdm=False)  # type: ignore[arg-type]


def test_empty_stop_string(make_llm: MakeLLM) -> None:
    with pytest.raises(ValueError, match="stop must not hold an empty string"):
        make_llm(ABC).generate("@", GREEDY, stop=["", "a"], use_tqdm=False)


@pytest.mark.parametrize(
    ("option", "problem"),
    [("refuse_token", "prompt holds the refused token"), ("fail_token", "the fail token was run")],
)
def test_a_late_refusal_leaves_the_others_their_answers(
    make_llm: MakeLLM, option: str, problem: str
) -> None:
    llm = make_llm(ABC, **{option: 33})
    with pytest.raises(PromptError) as caught:
        llm.generate(["@", "!@", "A", "!@"], GREEDY, use_tqdm=False)
    assert str(caught.value) == f"prompt 1: {problem}"
    assert (caught.value.index, caught.value.problem) == (1, problem)
    outputs = caught.value.outputs
    assert [output and output.text for output in outputs] == ["ABC", None, "BC", None]
    assert llm.generate("@", GREEDY, use_tqdm=False)[0].text == "ABC"


def test_a_dead_engine(make_llm: MakeLLM) -> None:
    llm = make_llm(ABC, die_token=33, max_num_seqs=1)
    with pytest.raises(EngineError, match=r"the engine died: .*the die token was run"):
        llm.generate(["@", "!@", *["A"] * 10], GREEDY, use_tqdm=False)
    with pytest.raises(EngineError, match="the engine died"):
        llm.generate("@", GREEDY, use_tqdm=False)


def test_options(make_llm: MakeLLM, tmp_path: Path) -> None:
    with pytest.raises(
        UserFault, match="LLM has no option 'max_model_length'; did you mean 'max_mo"
    ):
        make_llm(ABC, max_model_length=4)
    with pytest.raises(UserFault, match="max_num_seqs"):
        make_llm(ABC, max_num_seqs=0)
    with pytest.raises(UserFault, match="refuse_token"):
        make_llm(ABC, refuse_token="x")
    with pytest.raises(UserFault, match="--tp"):
        make_llm(ABC, tp=2)
    with pytest.raises(ConfigError, match="does not exist"):
        LLM(tmp_path / "nowhere", host=table_host())
    other = write_table_model(tmp_path / "other", ABC, model_type="chair")
    with pytest.raises(SelectionError, match="chair"):
        LLM(other, host=table_host())
    assert (
        LLM(other, host=table_host(), family="table").generate("@", GREEDY, use_tqdm=False)[0].text
        == "ABC"
    )


def test_no_tokenizer_is_found_before_the_engine_starts(tmp_path: Path) -> None:
    folder = write_table_model(tmp_path / "bare", ABC)
    (folder / "tokenizer.json").unlink()
    table_plugin.life.clear()
    with pytest.raises(TokenizerError, match="tokenizer"):
        LLM(folder, host=table_host())
    assert table_plugin.life == []


def test_close(make_llm: MakeLLM) -> None:
    before = set(threading.enumerate())
    llm = make_llm(ABC)
    with llm as same:
        assert same is llm
    llm.close()
    assert table_plugin.life == ["ready table", "stopping", "closed"]
    with pytest.raises(EngineError, match="this LLM is closed"):
        llm.generate("@", GREEDY, use_tqdm=False)
    left = set(threading.enumerate()) - before
    assert not [thread.name for thread in left if thread.name.startswith("pegainfer")]


def test_a_forgotten_one_is_closed(tmp_path: Path) -> None:
    table_plugin.life.clear()
    llm = LLM(write_table_model(tmp_path / "model", ABC), host=table_host())
    llm.generate("@", GREEDY, use_tqdm=False)
    del llm
    gc.collect()
    assert table_plugin.life[-1] == "closed"


def test_closing_while_another_thread_generates(make_llm: MakeLLM) -> None:
    llm = make_llm(ENDLESS, max_model_len=200_000)
    caught: list[BaseException] = []

    def work() -> None:
        try:
            llm.generate(["a"] * 600, SamplingParams(temperature=0), use_tqdm=False)
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while not llm.metrics().num_running:
        time.sleep(0.005)
    llm.close()
    thread.join(30)
    assert not thread.is_alive()
    assert isinstance(caught[0], EngineError)


def test_ctrl_c_stops_the_batch_and_keeps_the_model(make_llm: MakeLLM) -> None:
    llm = make_llm(ENDLESS, max_model_len=200_000)
    # A process started in the background inherits SIGINT ignored, and Python keeps it so.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt() -> None:
        while not llm.metrics().num_running:
            time.sleep(0.005)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["a"] * 3, SamplingParams(temperature=0), use_tqdm=False)
    signal.signal(signal.SIGINT, previous)
    assert [record.finish_reason for record in table_plugin.records] == ["abort"] * 3
    (output,) = llm.generate("a", GREEDY, use_tqdm=False)
    assert output.text == "a" * 8
    assert llm.metrics().num_running == 0


def test_records_of_ended_requests(make_llm: MakeLLM) -> None:
    llm = make_llm(ABC, refuse_token=33)
    with pytest.raises(PromptError):
        llm.generate(["@", "!"], GREEDY, use_tqdm=False)
    done = {record.finish_reason: record for record in table_plugin.records}
    assert set(done) == {"stop", "rejected"}
    assert (done["stop"].prompt_tokens, done["stop"].completion_tokens) == (1, 4)
    assert (done["stop"].model, done["stop"].family, done["stop"].endpoint) == (
        "model0",
        "table",
        "",
    )
    assert done["stop"].first_token_s is not None
    assert done["stop"].scheduled_s is not None
    assert done["stop"].scheduled_s <= done["stop"].first_token_s <= done["stop"].finished_s
    assert done["rejected"].detail == "prompt holds the refused token"


def test_a_program_that_never_closes_ends(tmp_path: Path) -> None:
    """With the installed echo family, through plugin discovery, as a user's script."""
    folder = write_table_model(tmp_path / "echo", {}, model_type="echo")
    code = (
        "from pegainfer_core import LLM, SamplingParams\n"
        f"llm = LLM({str(folder)!r}, max_num_seqs=4)\n"
        "outs = llm.generate(['abc', 'xyz'], SamplingParams(max_tokens=5), use_tqdm=False)\n"
        "print([o.text for o in outs])\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PEGAINFER_PLUGINS": "echo"},
    )
    assert (done.stdout, done.stderr, done.returncode) == ("['abcab', 'xyzxy']\n", "", 0)
