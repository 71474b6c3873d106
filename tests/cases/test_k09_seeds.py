"""K09: a seed gives one text, whoever else is in the batch and whatever happened to the request.

Seen elsewhere: a seed counts only while the batch mates have seeds too, or the samples of a seeded
request are copies of each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pegainfer_core import LLM
from pegainfer_core.contract import SamplingParams
from pegainfer_core.plugin import PluginHost
from pegainfer_core.testing.conformance.session import Session
from pegainfer_core.testing.tiny import row, table_model
from tests.cases.answers import greedy, run
from tests.cases.conftest import BARE_TEMPLATE, Serve, StartEngine
from tests.cases.http_server import CHAT, COMPLETIONS, HttpServer
from tests.cases.step_gate import StepGate

PROMPT = "@" * 10
NUM_TOKENS = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """F2 with all rows alike: after anything, one of eight equal tokens."""
    alike = row(dict.fromkeys("abcdefgh", 0.0), others=-40)
    table = dict.fromkeys(b"@abcdefgh", alike)
    return table_model(tmp_path_factory.mktemp("k09") / "m", table, chat_template=BARE_TEMPLATE)


@pytest.fixture(scope="module")
def llm(folder: Path, qwen3_host: PluginHost) -> Iterator[LLM]:
    with LLM(folder, host=qwen3_host, backend="numpy", max_num_seqs=32) as made:
        yield made


@pytest.fixture(scope="module")
def text(llm: LLM) -> str:
    """What seed 7 gives alone."""
    return texts(llm, seeded(7))[0]


def seeded(seed: int | None, **fields: object) -> SamplingParams:
    return SamplingParams(seed=seed, temperature=1, max_tokens=NUM_TOKENS, **fields)


def texts(llm: LLM, *params: SamplingParams) -> list[str]:
    outputs = run(llm, [PROMPT] * len(params), list(params))
    return [output.text for output in outputs]


def test_a_alone(llm: LLM, text: str) -> None:
    assert len(text) == NUM_TOKENS and set(text) <= set("abcdefgh")
    assert [texts(llm, seeded(7)) for _ in range(4)] == [[text]] * 4


def test_b_with_unseeded_mates(llm: LLM, text: str) -> None:
    for place in range(5):
        params = [seeded(None)] * 5
        params.insert(place, seeded(7))
        found = texts(llm, *params)
        assert found[place] == text
        assert len(set(found)) == 6


def test_b_with_mates_of_other_kinds(llm: LLM, text: str) -> None:
    kinds = [
        greedy(NUM_TOKENS),
        seeded(None, logprobs=3),
        seeded(3, repetition_penalty=1.5, frequency_penalty=1.0),
        seeded(4, logit_bias={97: 5.0}, top_k=2),
        seeded(5, allowed_token_ids=[97, 98]),
        seeded(None, top_p=0.5, min_p=0.1, min_tokens=3),
    ]
    alone = [texts(llm, params)[0] for params in (kinds[0], *kinds[2:5])]
    found = texts(llm, *kinds, seeded(7), *kinds)
    assert found[6] == text
    assert [found[0], *found[2:5]] == alone == [found[7], *found[9:12]]


def test_c_twice_in_one_batch(llm: LLM, text: str) -> None:
    assert texts(llm, seeded(7), seeded(None), seeded(7))[::2] == [text, text]


def test_d_samples(llm: LLM, text: str) -> None:
    samples = [output.text for output in llm.generate(PROMPT, seeded(7), n=4, use_tqdm=False)]
    assert samples[0] == text
    assert len(set(samples)) == 4
    mates = [seeded(None), seeded(7), greedy(NUM_TOKENS)]
    outputs = llm.generate([PROMPT] * 3, mates, n=4, use_tqdm=False)
    assert [output.text for output in outputs[4:8]] == samples
    assert [output.sample_index for output in outputs] == [0, 1, 2, 3] * 3
    assert len({output.text for output in outputs[:4]}) == 4
    assert len({output.text for output in outputs[8:]}) == 1


@pytest.fixture(scope="module")
def shared(serve: Serve, folder: Path) -> HttpServer:
    return serve(folder, num_kv_pages=64)


def test_d_samples_over_http(server: HttpServer, llm: LLM) -> None:
    """The same as offline, on both endpoints and streamed."""
    long = "@" * 100
    wanted = [output.text for output in llm.generate(long, seeded(7), n=4, use_tqdm=False)]
    fields = {"seed": 7, "temperature": 1, "max_tokens": NUM_TOKENS, "n": 4}
    for _ in range(2):
        whole = server.whole(COMPLETIONS, prompt=long, **fields)
        assert [choice["text"] for choice in whole["choices"]] == wanted
    streamed = ["", "", "", ""]
    for event in server.events(COMPLETIONS, prompt=long, **fields):
        streamed[event["choices"][0]["index"]] += event["choices"][0]["text"]
    assert streamed == wanted
    chat = server.whole(CHAT, messages=[{"role": "user", "content": long}], **fields)
    assert len({choice["message"]["content"] for choice in chat["choices"]}) == 4


def test_d_samples_share_their_prompt(server: HttpServer) -> None:
    """It is computed once, also where nothing of it was cached before."""
    before = server.metric("prefix_cache_hits_total")
    prompt = "@abc" * 50  # 200 tokens: 12 full pages
    server.whole(COMPLETIONS, prompt=prompt, n=4, temperature=1, max_tokens=2)
    assert server.metric("prefix_cache_hits_total") == before + 3 * 192


def test_e_another_seed(llm: LLM, text: str) -> None:
    seeds = (8, 0, -7, 7 + 2**32, 2**63)
    assert len({text, *texts(llm, *map(seeded, seeds))}) == 1 + len(seeds)


def test_f_without_a_seed(llm: LLM, text: str) -> None:
    found = [texts(llm, seeded(None))[0] for _ in range(10)]
    found += texts(llm, *[seeded(None)] * 10)
    assert len(set(found)) == 20, "a repetition has a chance of 1e-12"


def generated(session: Session, request_id: int) -> str:
    return bytes(session.answer(request_id).token_ids).decode()


@pytest.mark.usefixtures("crowded")
@pytest.mark.parametrize("prefix_cache", [False, True])
@pytest.mark.parametrize("seeds", [(8,), (8, None)])
def test_g_preempted(
    seeds: tuple[int | None, ...],
    prefix_cache: bool,
    folder: Path,
    text: str,
    start: StartEngine,
    gate: StepGate,
) -> None:
    """Pages run out when all need their second one: the youngest has to go, and comes back."""
    session = start(folder, num_kv_pages=len(seeds) + 2, prefix_cache=prefix_cache)
    prompt = list(PROMPT.encode())
    with gate.together(session):
        older = [session.submit(prompt, seeded(seed)) for seed in seeds]
        youngest = session.submit(prompt, seeded(7))
    assert generated(session, youngest) == text
    assert text not in [generated(session, request_id) for request_id in older]
    assert session.settle().num_preemptions >= 1
    if not prefix_cache:
        starts = [row.start for row in gate.rows_of(youngest)]
        assert starts.count(0) == 2, "it was computed from the start again"


@pytest.mark.usefixtures("crowded")
def test_g_preempted_again_and_again(folder: Path, text: str, start: StartEngine) -> None:
    session = start(folder, num_kv_pages=5)
    prompt = list(PROMPT.encode())
    seeds = [7, 8, 7, None, 9, 7]
    live = [session.submit(prompt, seeded(seed)) for seed in seeds]
    found = [generated(session, request_id) for request_id in live]
    assert [found[i] for i, seed in enumerate(seeds) if seed == 7] == [text] * 3
    assert session.settle().num_preemptions >= 2
