"""Through the whole engine: recorded steps change no token of any answer, whoever shares a step."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from pegainfer_qwen3.config import plan_qwen3
from pegainfer_qwen3.engine import launch

from pegainfer_core.contract import Finished, SamplingParams, Tokens
from pegainfer_core.engine import EngineClient
from plugins.pegainfer_qwen3.tests.stepper import Stepper, launch_context
from tests.hf import cases

if TYPE_CHECKING:
    from pathlib import Path

    from pegainfer_core.backend.cuda import CudaBackend

pytestmark = pytest.mark.gpu

CASE = "gqa5"
NUM_TOKENS = 40
TIMEOUT_S = 60
GREEDY = SamplingParams(temperature=0, max_tokens=NUM_TOKENS)
#: Every variant of sampling, among rows that do without.
SAMPLED = (
    SamplingParams(temperature=0.9, seed=3, max_tokens=NUM_TOKENS),
    SamplingParams(temperature=0.7, top_k=20, top_p=0.9, seed=4, max_tokens=NUM_TOKENS),
    SamplingParams(temperature=1.0, min_p=0.05, seed=5, max_tokens=NUM_TOKENS),
    SamplingParams(
        temperature=0.8,
        seed=6,
        presence_penalty=0.4,
        frequency_penalty=0.3,
        repetition_penalty=1.1,
        max_tokens=NUM_TOKENS,
    ),
    SamplingParams(temperature=0.8, seed=7, logprobs=3, max_tokens=NUM_TOKENS),
    SamplingParams(temperature=0, logit_bias={5: 3.0}, max_tokens=NUM_TOKENS),
)
Job = tuple[list[int], SamplingParams]


def jobs(num_greedy: int, sampled: tuple[SamplingParams, ...]) -> list[Job]:
    params = [GREEDY] * num_greedy + list(sampled)
    return [(cases.prompt(CASE, 4 + 9 * i, 0).tolist(), chosen) for i, chosen in enumerate(params)]


def answers(model_dir: Path, batches: list[list[Job]], **options: object) -> list[list[list[int]]]:
    """Token ids of each job of each batch; the jobs of a batch run side by side."""
    limits = {
        "backend": "cuda",
        "num_kv_pages": 512,
        "max_num_seqs": 32,
        "max_prefill_tokens": 96,
        "max_model_len": 512,
    }
    context = launch_context(model_dir, **(limits | options))
    engine = launch(context, plan_qwen3(context))

    async def answer(client: EngineClient, job: Job) -> list[int]:
        events = [event async for event in client.submit(*job)]
        assert isinstance(events[-1], Finished), events[-1]
        return [i for event in events if isinstance(event, Tokens) for i in event.token_ids]

    async def main() -> list[list[list[int]]]:
        client = EngineClient(engine)
        return [
            list(await asyncio.gather(*(answer(client, job) for job in batch))) for batch in batches
        ]

    try:
        return asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))
    finally:
        engine.close()


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cases.build(CASE, tmp_path_factory.mktemp("graphs") / CASE)


@pytest.mark.parametrize("num_greedy", [1, 3, 11])
def test_recorded_steps_change_no_token(num_greedy: int, model_dir: Path) -> None:
    batch = jobs(num_greedy, SAMPLED)
    recorded = answers(model_dir, [batch, batch], cuda_graph=True, prefix_cache=False)
    plain = answers(model_dir, [batch], cuda_graph=False, prefix_cache=False)
    assert recorded == [*plain, *plain]
    assert all(len(token_ids) == NUM_TOKENS for token_ids in plain[0])


def test_launching_ahead_changes_no_token(model_dir: Path, cuda: CudaBackend) -> None:
    """The engine launches a step before it has read the last one; here each is read at once."""
    batch = jobs(5, SAMPLED)
    stepper = Stepper(model_dir, backend=cuda, num_kv_pages=512)
    sequences = [stepper.sequence(prompt, NUM_TOKENS, params) for prompt, params in batch]
    for _ in range(NUM_TOKENS):
        work = [(sequence, sequence.num_uncomputed) for sequence in sequences]
        stepper.step(sorted(work, key=lambda row: row[1]))
    plain = [sequence.token_ids[sequence.num_prompt :] for sequence in sequences]
    (ahead,) = answers(model_dir, [batch])
    assert ahead == plain


def test_a_request_is_answered_alike_alone_and_in_company(model_dir: Path) -> None:
    """A seed decides, not the others of the step. float32: ways differ by less than any lead."""
    batch = jobs(2, SAMPLED)
    together, *alone = answers(model_dir, [batch, *([job] for job in batch)])
    assert [answer for (answer,) in alone] == together
