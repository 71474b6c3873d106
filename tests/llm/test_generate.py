"""Prompts in, answers out: shapes, order, texts, ends, log-probabilities, defaults."""

from __future__ import annotations

import asyncio
import math
import threading

import numpy as np
import pytest

from pegainfer_core import SamplingParams
from pegainfer_core.llm import LLM, RequestOutput
from tests.llm import table_plugin
from tests.llm.conftest import MakeLLM, script

GREEDY = SamplingParams(temperature=0, max_tokens=8)
ABC = script(64, 65, 66, 67, 256)


def texts(outputs: list[RequestOutput]) -> list[str]:
    return [output.text for output in outputs]


def test_one_text(make_llm: MakeLLM) -> None:
    (output,) = make_llm(ABC).generate("x@", GREEDY, use_tqdm=False)
    assert output == RequestOutput(
        prompt="x@",
        prompt_token_ids=[120, 64],
        text="ABC",
        token_ids=[65, 66, 67, 256],
        finish_reason="stop",
    )


@pytest.mark.parametrize(
    ("prompts", "expected", "prompt_texts"),
    [
        (["@", "A", "B@"], ["ABC", "BC", "ABC"], ["@", "A", "B@"]),
        ([[64], [65]], ["ABC", "BC"], [None, None]),
        ([64], ["ABC"], [None]),
        (["A", [64], "B"], ["BC", "ABC", "C"], ["A", None, "B"]),
        (np.array([[65, 64], [64, 66]]), ["ABC", "C"], [None, None]),
        (np.array([65, 64]), ["ABC"], [None]),
        ([], [], []),
    ],
)
def test_shapes_of_prompts(
    make_llm: MakeLLM, prompts: object, expected: list[str], prompt_texts: list[str | None]
) -> None:
    outputs = make_llm(ABC).generate(prompts, GREEDY, use_tqdm=False)  # type: ignore[arg-type]
    assert texts(outputs) == expected
    assert [output.prompt for output in outputs] == prompt_texts


def test_order_holds_with_more_prompts_than_rows(make_llm: MakeLLM) -> None:
    llm = make_llm(script(*range(64, 128)), max_num_seqs=3)
    prompts = [[64 + i] for i in range(40)]
    params = [SamplingParams(temperature=0, max_tokens=1 + i % 5) for i in range(40)]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    assert [output.token_ids for output in outputs] == [
        list(range(65 + i, 66 + i + i % 5)) for i in range(40)
    ]
    assert {output.finish_reason for output in outputs} == {"length"}


def test_lists_of_different_length(make_llm: MakeLLM) -> None:
    with pytest.raises(ValueError, match="2 prompts came with 1 sampling parameters"):
        make_llm(ABC).generate(["@", "@"], [GREEDY], use_tqdm=False)


@pytest.mark.parametrize(
    ("stop", "text", "token_ids", "reason"),
    [
        ("C", "AB", [65, 66, 67], "C"),
        (["x", "BC"], "A", [65, 66, 67], "BC"),
        ("zz", "ABC", [65, 66, 67, 256], None),
    ],
)
def test_stop_strings(
    make_llm: MakeLLM, stop: str | list[str], text: str, token_ids: list[int], reason: str | None
) -> None:
    llm = make_llm(ABC)
    for shown, expected in ((False, text), (True, text + (reason or ""))):
        (output,) = llm.generate(
            "@", GREEDY, stop=stop, include_stop_str_in_output=shown, use_tqdm=False
        )
        assert (output.text, output.token_ids) == (expected, token_ids)
        assert (output.finish_reason, output.stop_reason) == ("stop", reason)


def test_a_stop_string_stops_the_engine(make_llm: MakeLLM) -> None:
    llm = make_llm({**script(*range(65, 91)), 90: {65: 40.0}})
    (output,) = llm.generate("A", SamplingParams(temperature=0), stop="F", use_tqdm=False)
    assert output.text == "BCDE"
    assert llm.generate("A", GREEDY, use_tqdm=False)[0].text == "BCDEFGHI"
    assert "abort 1" in table_plugin.life
    assert llm.metrics().num_running == 0


def test_stop_token_ids_and_ignore_eos(make_llm: MakeLLM) -> None:
    """Case A15 b and c: the client's ids stay active when the model's own are ignored."""
    llm = make_llm(script(64, 65, 257, 66, 256, 67, 68), {"eos_token_id": [256, 257]})
    own = SamplingParams(temperature=0, max_tokens=6)
    assert texts(llm.generate("@", own, use_tqdm=False)) == ["A"]
    ignoring = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    (output,) = llm.generate("@", ignoring, use_tqdm=False)
    assert (output.text, len(output.token_ids), output.finish_reason) == ("ABCD", 6, "length")
    client = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, stop_token_ids=[257])
    (output,) = llm.generate("@", client, use_tqdm=False)
    assert (output.text, output.finish_reason, output.stop_reason) == ("A", "stop", 257)


def test_special_tokens_show_when_asked(make_llm: MakeLLM) -> None:
    llm = make_llm(script(64, 257, 65, 256))
    assert texts(llm.generate("@", GREEDY, use_tqdm=False)) == ["A"]
    shown = llm.generate("@", GREEDY, skip_special_tokens=False, use_tqdm=False)
    assert texts(shown) == ["<turn>A"]


def test_characters_over_several_tokens(make_llm: MakeLLM) -> None:
    ids = list("né한🧭".encode())
    assert texts(
        make_llm(script(64, *ids, 256)).generate("@", SamplingParams(temperature=0), use_tqdm=False)
    ) == ["né한🧭"]


def test_logprobs(make_llm: MakeLLM) -> None:
    llm = make_llm({64: {97: 2, 98: 1, 99: 0, 100: -1}, 97: {256: 40}})
    params = SamplingParams(temperature=0, logprobs=4, prompt_logprobs=1)
    (output,) = llm.generate([97, 64, 98, 64], params, use_tqdm=False)
    assert output.token_ids == [97, 256]
    assert output.logprobs is not None
    first, end = output.logprobs
    assert first.top_token_ids == [97, 98, 99, 100]
    assert first.top_logprobs == pytest.approx([-0.4402, -1.4402, -2.4402, -3.4402], abs=5e-5)
    assert (end.logprob, end.rank) == (pytest.approx(0, abs=1e-6), 1)
    assert output.prompt_logprobs is not None
    assert output.prompt_logprobs[0] is None
    given = output.prompt_logprobs[2]
    assert given is not None
    assert (given.rank, given.top_token_ids) == (2, [97])
    assert given.logprob == pytest.approx(-1.4402, abs=5e-5)
    plain = llm.generate("@", GREEDY, use_tqdm=False)[0]
    assert plain.logprobs is None
    assert plain.prompt_logprobs is None


def test_seeds(make_llm: MakeLLM) -> None:
    """Case K09 a, c, e, f through the whole engine."""
    eight = {97 + i: math.log(1 / 8) for i in range(8)}
    llm = make_llm({64: eight, **{97 + i: eight for i in range(8)}})

    def run(*seeds: int | None) -> list[str]:
        params = [SamplingParams(seed=seed, max_tokens=16) for seed in seeds]
        return texts(llm.generate(["@"] * len(seeds), params, use_tqdm=False))

    alone = run(7)
    assert run(7, 7, 8, None, None)[:2] == alone * 2
    assert run(8) != alone
    assert len(set(run(*[None] * 20))) == 20


def test_cached_tokens(make_llm: MakeLLM) -> None:
    (output,) = make_llm(ABC).generate([[64] * 40], GREEDY, use_tqdm=False)
    assert output.num_cached_tokens == 32


def test_no_room_asked_for(make_llm: MakeLLM) -> None:
    (output,) = make_llm(ABC).generate("@", SamplingParams(max_tokens=0), use_tqdm=False)
    assert (output.text, output.token_ids, output.finish_reason) == ("", [], "length")


def test_models_defaults_and_how_to_change_them(make_llm: MakeLLM) -> None:
    generation = {"temperature": 0.5, "top_k": 1, "repetition_penalty": 1.5, "max_new_tokens": 2}
    llm = make_llm(ABC, generation)
    defaults = SamplingParams(temperature=0.5, top_k=1, repetition_penalty=1.5, max_tokens=2)
    assert llm.default_params() == defaults
    assert llm.default_params(top_k=0, seed=3) == SamplingParams(
        temperature=0.5, repetition_penalty=1.5, max_tokens=2, seed=3
    )
    with pytest.raises(TypeError, match="top_q"):
        llm.default_params(top_q=1)
    assert texts(llm.generate("@", use_tqdm=False)) == ["AB"]
    assert texts(llm.generate("@", SamplingParams(temperature=0), use_tqdm=False)) == ["ABC"]
    # The default limit gives way to the context, as in the server; a given one does not.
    (output,) = llm.generate([[65] * 510 + [64]], use_tqdm=False)
    assert (output.text, output.finish_reason) == ("A", "length")


def test_defaults_switched_off(make_llm: MakeLLM) -> None:
    llm = make_llm(ABC, {"temperature": 0.5, "eos_token_id": 66}, generation_config="none")
    assert llm.default_params() == SamplingParams()
    assert texts(llm.generate("@", use_tqdm=False)) == ["A"]


def test_inside_a_running_loop(make_llm: MakeLLM) -> None:
    llm = make_llm(ABC)

    async def notebook_cell() -> list[str]:
        return texts(llm.generate("@", GREEDY, use_tqdm=False))

    assert asyncio.run(notebook_cell()) == ["ABC"]


def test_from_several_threads(make_llm: MakeLLM) -> None:
    llm = make_llm(ABC)
    found: dict[int, list[str]] = {}

    def work(number: int) -> None:
        found[number] = texts(llm.generate(["@", "A", "B"] * 10, GREEDY, use_tqdm=False))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(4), ["ABC", "BC", "C"] * 10)


def test_progress_bar(make_llm: MakeLLM, capsys: pytest.CaptureFixture[str]) -> None:
    llm = make_llm(ABC)
    llm.generate(["@", "A"], GREEDY)
    shown = capsys.readouterr().err
    assert "Generating" in shown
    assert "2/2" in shown
    assert "tok/s" in shown
    llm.generate(["@", "A"], GREEDY, use_tqdm=False)
    assert capsys.readouterr().err == ""


def test_info(make_llm: MakeLLM) -> None:
    llm = make_llm(ABC, max_model_len=99)
    assert isinstance(llm, LLM)
    assert (llm.info.family, llm.info.max_model_len) == ("table", 99)
    assert llm.tokenizer.encode("A", add_special_tokens=False) == [65]
