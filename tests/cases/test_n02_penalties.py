"""N02: penalties by the rule of transformers: divide the positive, multiply the negative logits.

Seen elsewhere: the repetition penalty rewards tokens with negative logits, leaves out the prompt or
is applied twice; presence and frequency count the prompt's tokens.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pegainfer_core.contract import GenerateRequest, SamplingParams
from pegainfer_core.engine import Sequence
from pegainfer_core.sampling.rules import LogitRules
from pegainfer_core.testing.tiny import row, table_model
from tests.cases.answers import greedy, run
from tests.cases.conftest import LoadLLM, StartEngine
from tests.cases.step_gate import StepGate

#: Prompt, fields and text of every letter; the last byte of a prompt picks the row.
PENALISED = {
    "a": ("A1", greedy(1, repetition_penalty=1.5), "B"),
    "b": ("A2", greedy(1, repetition_penalty=1.5), "A"),
    "c": ("A@", greedy(2, presence_penalty=2), "AB"),
    "d": ("A@", greedy(3, frequency_penalty=0.15), "AAB"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    both = row({"A": 1.0, "B": 0.8}, others=-5)
    table = {
        ord("1"): row({"A": -0.5, "B": -0.6}, others=-5),
        ord("2"): row({"A": -0.5, "B": -0.8}, others=-5),
        ord("@"): both,
        ord("A"): both,
        ord("B"): both,
    }
    return table_model(tmp_path / "m", table)


@pytest.mark.parametrize("letter", PENALISED)
def test_alone(letter: str, folder: Path, load: LoadLLM) -> None:
    prompt, params, text = PENALISED[letter]
    assert run(load(folder), prompt, params)[0].text == text


def test_all_in_one_batch(folder: Path, load: LoadLLM) -> None:
    """Beside rows without penalties and with each other's."""
    plain = ("A@", greedy(3), "AAA")
    work = [plain, *PENALISED.values(), plain, *reversed(PENALISED.values())]
    outputs = run(load(folder), [prompt for prompt, _, _ in work], [p for _, p, _ in work])
    assert [output.text for output in outputs] == [text for _, _, text in work]


def test_presence_counts_once_and_frequency_each_time(folder: Path, load: LoadLLM) -> None:
    """A 1.0 and B 0.8: after A and B once each, presence leaves A ahead for good."""
    llm = load(folder)
    (presence,) = run(llm, "@", greedy(6, presence_penalty=0.5))
    assert presence.text == "ABAAAA"
    (frequency,) = run(llm, "@", greedy(8, frequency_penalty=0.15))
    # 1.0 .85 | B .8 | A .70, B .65: .70 > .65, then .55 < .65, ...
    assert frequency.text == "AABABABA"
    # Negative ones reward: what was said is said again.
    (reward,) = run(llm, "@", greedy(4, presence_penalty=-1))
    assert reward.text == "AAAA"


def test_the_unit() -> None:
    request = GenerateRequest(
        request_id=1,
        prompt_token_ids=[1],
        params=SamplingParams(temperature=0, repetition_penalty=1.5),
    )
    sequence = Sequence(request, 8)
    sequence.token_ids.append(0)
    logits = np.array([2, -1, 0.5, -3], np.float32)
    rules = LogitRules(request)
    assert rules.active(sequence)
    rules.apply(logits, sequence)
    np.testing.assert_allclose(logits, [4 / 3, -1.5, 0.5, -3], rtol=1e-6)


@pytest.mark.usefixtures("crowded")
def test_state_survives_preemption_and_changing_mates(
    folder: Path, start: StartEngine, gate: StepGate
) -> None:
    """Counts are rebuilt from prompt and output; the prompt's share stays the prompt's."""
    params = [
        greedy(24, frequency_penalty=0.15),
        greedy(24, presence_penalty=0.5),
        greedy(24, repetition_penalty=1.1, frequency_penalty=0.05),
    ]
    prompt = list(b"BBAB" * 2 + b"@")
    ample = start(folder)
    alone = [ample.generate(prompt, one).token_ids for one in params]
    assert len({tuple(ids) for ids in alone}) == 3
    session = start(folder, num_kv_pages=4)
    gate.steps.clear()
    with gate.together(session):
        live = [session.submit(prompt, one) for one in params]
    late = session.submit(prompt, params[0])
    assert [session.answer(request_id).token_ids for request_id in live] == alone
    assert session.answer(late).token_ids == alone[0]
    begun_twice = [
        request_id
        for request_id in live
        if sum(row.start == 0 for row in gate.rows_of(request_id)) > 1
    ]
    assert begun_twice, "none was preempted"


def test_logprobs_stay_the_models_own(folder: Path, load: LoadLLM) -> None:
    """Penalties move the choice, not what is reported of the model."""
    llm = load(folder)
    (plain,) = run(llm, "A1", greedy(1, logprobs=2))
    (penalised,) = run(llm, "A1", greedy(1, logprobs=2, repetition_penalty=1.5))
    assert plain.logprobs is not None and penalised.logprobs is not None
    assert plain.text == "A" and penalised.text == "B"
    assert penalised.logprobs[0].top_token_ids == plain.logprobs[0].top_token_ids == [65, 66]
    assert penalised.logprobs[0].top_logprobs == plain.logprobs[0].top_logprobs
    assert penalised.logprobs[0].logprob == plain.logprobs[0].top_logprobs[1]
