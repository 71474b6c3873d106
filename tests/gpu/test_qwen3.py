"""Qwen3 on CUDA: the goldens, recordings, and what must not change an answer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pegainfer_core.backend.cuda.arrays import memory
from pegainfer_core.contract import SamplingParams
from plugins.pegainfer_qwen3.tests.stepper import Stepper
from tests.hf import cases, gate, golden

if TYPE_CHECKING:
    from pathlib import Path

    from pegainfer_core.backend.cuda import CudaBackend

pytestmark = pytest.mark.gpu

FLOAT32 = [name for name, arguments in cases.CASES.items() if arguments.get("dtype") is None]
NUM_PAGES = 1024


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("qwen3")


@pytest.fixture(scope="session")
def eager() -> CudaBackend:
    from pegainfer_core.backend.cuda import CudaBackend

    return CudaBackend(record=False)


def stepper(case: str, folder: Path, backend: CudaBackend, **options: object) -> Stepper:
    path = folder / case
    if not path.exists():
        cases.build(case, path)
    return Stepper(path, backend=backend, num_kv_pages=NUM_PAGES, **options)


@pytest.mark.parametrize("case", cases.CASES)
def test_logits_agree_with_the_goldens(case: str, folder: Path, cuda: CudaBackend) -> None:
    made = stepper(case, folder, cuda)
    for prompt in golden.load(case).prompts.values():
        for chunks in ((), (17, 40)):
            logits = made.logits(prompt.prompt, chunks)
            result = gate.compare(logits, prompt, tolerance=gate.GPU_TOLERANCE)
            assert result.passed, result


@pytest.mark.parametrize("case", FLOAT32)
def test_greedy_tokens_are_those_of_the_goldens(case: str, folder: Path, cuda: CudaBackend) -> None:
    made = stepper(case, folder, cuda)
    prompts = list(golden.load(case).prompts.values())
    mates = [prompts[i % len(prompts)].prompt for i in (1, 2, 0, 1, 2)]
    together = made.generate(
        [*(prompt.prompt for prompt in prompts), *mates], cases.NUM_GREEDY_TOKENS, chunk_tokens=100
    )
    (alone,) = made.generate([prompts[0].prompt], cases.NUM_GREEDY_TOKENS)
    for tokens, prompt in [*zip(together, prompts, strict=False), (alone, prompts[0])]:
        result = gate.compare_greedy(tokens, prompt)
        assert result.passed, result.faults


@pytest.mark.parametrize("case", ["bf16", "gqa5"])
@pytest.mark.parametrize("num_rows", [1, 3, 8, 21])
def test_a_recording_does_what_the_steps_did(
    case: str, num_rows: int, folder: Path, cuda: CudaBackend, eager: CudaBackend
) -> None:
    prompts = [cases.prompt(case, 5 + 7 * i, 0).tolist() for i in range(num_rows)]
    recorded, plain = (
        stepper(case, folder, backend).generate(prompts, 24) for backend in (cuda, eager)
    )
    assert recorded == plain


def test_rows_that_fill_up_a_batch_write_to_the_padding_page_only(
    folder: Path, cuda: CudaBackend
) -> None:
    made = stepper("bf16", folder, cuda)
    sequences = [made.sequence(cases.prompt("bf16", 20 + i, 0)) for i in range(5)]
    made.step([(sequence, sequence.num_uncomputed) for sequence in sequences])
    for _ in range(4):
        made.step([(sequence, 1) for sequence in sequences])
    used = {page for sequence in sequences for page in sequence.page_ids} | {0}
    pages = cuda.to_host(made.kv.pages, made.kv.num_pages).reshape(made.kv.num_pages, -1)
    unused = [page for page in range(made.kv.num_pages) if page not in used]
    assert not pages[unused].any()


def test_seeded_sampling_is_equal_alone_and_batched(folder: Path, cuda: CudaBackend) -> None:
    made = stepper("gqa2", folder, cuda)
    params = SamplingParams(temperature=0.8, top_p=0.9, seed=7)
    answers = []
    for num_mates in (0, 4):
        own = made.sequence(cases.prompt("gqa2", 30, 0), params=params)
        mates = [made.sequence(cases.prompt("gqa2", 12 + i, 0)) for i in range(num_mates)]
        for _ in range(16):
            rows = [(seq, seq.num_uncomputed) for seq in (own, *mates)]
            made.step(sorted(rows, key=lambda row: row[1]))
        answers.append(own.token_ids[own.num_prompt :])
        made.release(own, *mates)
    assert answers[0] == answers[1]


def test_dummy_weights_are_those_of_the_host(folder: Path, cuda: CudaBackend) -> None:
    for case in ("bf16", "gqa5"):
        made = stepper(case, folder, cuda, load_format="dummy", seed=5)
        reference = Stepper(folder / case, load_format="dummy", seed=5)
        assert made.weights_digest() == reference.weights_digest()


def test_weights_are_those_of_the_file(folder: Path, cuda: CudaBackend) -> None:
    for case in ("bf16", "sharded"):
        made, reference = stepper(case, folder, cuda), Stepper(folder / case)
        assert made.weights_digest() == reference.weights_digest()


def test_weights_take_two_bytes_a_value(folder: Path, cuda: CudaBackend) -> None:
    """Case C08, where it matters: on the device."""
    for case, num_bytes in (("bf16", 2), ("gqa5", 4)):
        for tensor in stepper(case, folder, cuda).weight_tensors():
            assert memory(tensor).num_bytes == num_bytes * math.prod(tensor.shape)


def test_steps_take_no_memory(folder: Path, cuda: CudaBackend) -> None:
    made = stepper("bf16", folder, cuda)
    prompts = [cases.prompt("bf16", 5 + 7 * i, 0).tolist() for i in range(11)]
    made.generate(prompts, 4)
    free, _ = cuda.device.memory()
    for _ in range(30):
        made.generate(prompts, 4)
    assert cuda.device.memory()[0] == free


def test_pages_are_sized_from_free_memory(folder: Path, cuda: CudaBackend) -> None:
    layout = stepper("bf16", folder, cuda).kv.layout
    memory = cuda._memory()
    pages = cuda.fitting_pages(layout, 0.3)
    own = memory.own_bytes + (pages + 1) * layout.page_bytes
    assert own <= memory.total_bytes * 0.3 < own + 2 * layout.page_bytes
    from pegainfer_core.weights import ConfigError

    with pytest.raises(ConfigError, match=r"--gpu-memory-utilization 1e-06 allows it 0\.0"):
        cuda.fitting_pages(layout, 1e-6)


def test_logits_are_the_same_in_any_company(folder: Path, cuda: CudaBackend) -> None:
    made = stepper("bf16", folder, cuda)
    prompt = cases.prompt("bf16", 130, 0)
    first = made.logits(prompt)
    np.testing.assert_array_equal(made.logits(prompt), first)
