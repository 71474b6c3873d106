"""Masks of grammars on the device: the host's choices, and whole answers through the engine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pegainfer_core.contract import SamplingParams, StructuredOutput
from pegainfer_core.sampling import ChoiceKind
from tests.gpu.choices import Choices
from tests.gpu.test_graphs import GREEDY, SAMPLED, answers, jobs
from tests.gpu.test_sampling import DRAWS, normal, ties
from tests.hf import cases

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from pegainfer_core.backend.cuda import CudaBackend
    from pegainfer_core.engine.sequence import Sequence

pytestmark = pytest.mark.gpu

P = SamplingParams
ANY = StructuredOutput(kind="json_object")
SETTINGS = [
    *DRAWS,
    P(temperature=0, repetition_penalty=1.3),
    P(seed=1, presence_penalty=0.7, frequency_penalty=-0.3, repetition_penalty=0.8, logprobs=0),
    P(seed=2, logit_bias={5: 3.0, 9: -20.0, 3: 4.0}, logprobs=3, min_tokens=2),
    P(temperature=0, logprobs=20),
]
REGEX = "[a-f]{4}(-[0-9]{2}){1,3}"
CASE = "gqa5"


class RandomMasks:
    """Implements `GrammarState`: other masks in every step, some of a single id."""

    def __init__(self, seed: int, vocab: int) -> None:
        self.error, self.finished = "", False
        self._seed, self._vocab = seed, vocab

    def mask(self, num_generated: int) -> NDArray[np.int32]:
        rng = np.random.default_rng((self._seed, num_generated))
        held = np.zeros(-(-self._vocab // 32) * 32, np.bool_)
        share = float(rng.choice([0.0, 1e-3, 0.5, 1.0]))
        held[: self._vocab] = rng.random(self._vocab) < share
        held[int(rng.integers(self._vocab))] = True
        return np.packbits(held, bitorder="little").view("<i4").astype(np.int32)

    def advance(self, token_id: int) -> None:
        pass


def masked(choices: Choices, count: int, vocab: int) -> list[Sequence]:
    """Every other row has masks."""
    forms = [ANY if index % 2 else None for index in range(count)]
    made = choices.sequences(
        [
            SamplingParams(**{**_fields(SETTINGS[index % len(SETTINGS)]), "structured": form})
            for index, form in enumerate(forms)
        ]
    )
    for index, sequence in enumerate(made):
        if forms[index] is not None:
            sequence.grammar = RandomMasks(index, vocab)
    return made


def _fields(params: SamplingParams) -> dict[str, object]:
    return {name: getattr(params, name) for name in params.__struct_fields__}


@pytest.mark.parametrize("vocab", [97, 1000, 151936])
@pytest.mark.parametrize("make", [normal(2), ties], ids=["normal", "ties"])
def test_masked_rows_choose_as_on_the_host(cuda: CudaBackend, vocab: int, make: object) -> None:
    count = 40 if vocab > 1000 else 256
    choices = Choices(cuda, vocab, count)
    sequences = masked(choices, count, vocab)
    for step in range(5):
        logits = make(choices.random, count, vocab)
        kind = choices.step(sequences, logits, num_unread=min(step, 1))
        assert kind is ChoiceKind.FULL


def form(text: str, **fields: object) -> SamplingParams:
    wish = StructuredOutput(kind="regex", text=text)
    return SamplingParams(**{"max_tokens": 40, "structured": wish, **fields})


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cases.build(CASE, tmp_path_factory.mktemp("masks") / CASE)


def prompt(index: int) -> list[int]:
    return cases.prompt(CASE, 4 + 9 * index, 0).tolist()


FORMS = [
    form(REGEX, temperature=0),
    form(REGEX, seed=3),
    form(REGEX, seed=4, frequency_penalty=0.5, logit_bias={97: 3.0}, logprobs=2),
    form("[xy]{30}", seed=5, top_p=0.9, min_tokens=3),
]


@pytest.mark.parametrize("cuda_graph", [True, False])
def test_answers_have_their_form_and_others_are_as_alone(model_dir: Path, cuda_graph: bool) -> None:
    plain = jobs(3, SAMPLED[:4])
    formed = [(prompt(index), params) for index, params in enumerate(FORMS)]
    options = {"cuda_graph": cuda_graph, "prefix_cache": False}
    batches = [plain, [*plain, *formed], [*plain, *formed], formed]
    alone, *mixed, only = answers(model_dir, batches, **options)
    for together in mixed:
        assert together[: len(plain)] == alone
        assert together[len(plain) :] == only
    texts = [bytes(token_ids).decode() for token_ids in only]
    assert all(re.fullmatch(REGEX, text) for text in texts[:3]), texts
    assert re.fullmatch("[xy]{30}", texts[3])


def test_recorded_steps_choose_as_others_do(model_dir: Path) -> None:
    formed = [(prompt(index % 4), FORMS[index % 4]) for index in range(9)]
    recorded = answers(model_dir, [formed] * 3, cuda_graph=True, prefix_cache=False)
    (eager,) = answers(model_dir, [formed], cuda_graph=False, prefix_cache=False)
    assert recorded == [eager] * 3


def test_masked_answers_through_preemptions(model_dir: Path) -> None:
    """A pool that all of them do not fit into at once."""
    formed = [
        (prompt(index % 4), form("[ab]{90}", seed=index, max_tokens=96)) for index in range(8)
    ]
    plain = [(prompt(3), SamplingParams(temperature=0, max_tokens=GREEDY.max_tokens))]
    (roomy,) = answers(model_dir, [[*formed, *plain]], prefix_cache=False)
    (tight,) = answers(model_dir, [[*formed, *plain]], prefix_cache=False, num_kv_pages=40)
    assert tight == roomy
    assert all(re.fullmatch("[ab]{90}", bytes(ids).decode()) for ids in roomy[:-1])
