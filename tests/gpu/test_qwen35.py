"""Qwen3.5 on CUDA: the goldens, recordings, and what must not change an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from pegainfer_qwen35.engine import PREFILL_TOKENS

from plugins.pegainfer_qwen35.tests.stepper import Stepper
from tests.hf import cases, gate, golden

if TYPE_CHECKING:
    from pathlib import Path

    from pegainfer_core.backend.cuda import CudaBackend
    from pegainfer_core.kernels import KernelSpec

pytestmark = pytest.mark.gpu

FLOAT32 = [name for name, given in cases.QWEN35_CASES.items() if given.get("dtype") is None]
NUM_PAGES = 1024


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("qwen35")


@pytest.fixture(scope="module")
def small(folder: Path) -> Path:
    """One layer of each kind."""
    return cases.small_qwen35(folder / "small")


@pytest.fixture(scope="module")
def recording() -> CudaBackend:
    from pegainfer_core.backend.cuda import CudaBackend

    return CudaBackend()


@pytest.fixture(scope="module")
def eager() -> CudaBackend:
    from pegainfer_core.backend.cuda import CudaBackend

    return CudaBackend(record=False)


def stepper(path: Path, backend: CudaBackend | None, **options: object) -> Stepper:
    return Stepper(path, backend=backend, num_kv_pages=NUM_PAGES, **options)


def checkpoint(case: str, folder: Path) -> Path:
    path = folder / case
    return path if path.exists() else cases.build(case, path)


@pytest.mark.parametrize("case", cases.QWEN35_CASES)
def test_logits_agree_with_the_goldens(case: str, folder: Path, recording: CudaBackend) -> None:
    made = stepper(checkpoint(case, folder), recording)
    for prompt in golden.load(case).prompts.values():
        for chunks in ((), (70, 1, 33)):
            logits = made.logits(prompt.prompt, chunks)
            result = gate.compare(logits, prompt, tolerance=gate.GPU_TOLERANCE)
            assert result.passed, result


@pytest.mark.parametrize("case", FLOAT32)
def test_greedy_tokens_are_those_of_the_goldens(
    case: str, folder: Path, recording: CudaBackend
) -> None:
    made = stepper(checkpoint(case, folder), recording)
    prompts = list(golden.load(case).prompts.values())
    mates = [prompts[i % len(prompts)].prompt for i in (1, 2, 0, 1, 2)]
    together = made.generate(
        [*(prompt.prompt for prompt in prompts), *mates], cases.NUM_GREEDY_TOKENS, chunk_tokens=100
    )
    (alone,) = made.generate([prompts[0].prompt], cases.NUM_GREEDY_TOKENS)
    for tokens, prompt in [*zip(together, prompts, strict=False), (alone, prompts[0])]:
        result = gate.compare_greedy(tokens, prompt)
        assert result.passed, result.faults


@pytest.mark.parametrize("num_rows", [1, 3, 8, 21])
def test_a_recording_does_what_the_steps_did(
    num_rows: int, small: Path, recording: CudaBackend, eager: CudaBackend
) -> None:
    prompts = [ids(5 + 7 * i) for i in range(num_rows)]
    recorded, plain = (
        stepper(small, backend).generate(prompts, 24) for backend in (recording, eager)
    )
    assert recorded == plain


@pytest.mark.parametrize("case", ["qwen35_ratio3", "qwen35_bf16", "qwen35_sizes"])
def test_all_kernels_are_named_before_the_first_step(
    case: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or requests would wait for a compiler, and `pegainfer kernels build` would miss them."""
    from pegainfer_core.backend.cuda import CudaBackend
    from pegainfer_core.backend.cuda.library import KernelLibrary

    load, late = KernelLibrary._load, []

    def noting(self: KernelLibrary, spec: KernelSpec) -> None:
        late.append(spec.label)
        load(self, spec)

    monkeypatch.setattr(KernelLibrary, "_load", noting)
    made = stepper(checkpoint(case, folder), CudaBackend())
    for num_rows in (1, 3, 20):
        made.generate([ids(3 + 20 * i) for i in range(num_rows)], 4, chunk_tokens=100)
    assert not late


@pytest.mark.parametrize("num_tokens", [1, 2, 3, 63, 64, 65, 130, 1041])
def test_chunked_is_whole(num_tokens: int, small: Path, recording: CudaBackend) -> None:
    made = stepper(small, recording, max_model_len=2048)
    whole = made.logits(ids(num_tokens))
    for size in (1, 63, 64, 65, 1000):
        chunked = made.logits(ids(num_tokens), [size] * (num_tokens // size))
        np.testing.assert_allclose(chunked, whole, atol=2e-4, err_msg=f"chunks of {size}")


def test_a_large_step_is_many_small_ones(small: Path, recording: CudaBackend) -> None:
    """As many tokens as steps are given where memory allows."""
    prompts = [ids(1024 + 7 * i) for i in range(23)]
    made = Stepper(
        small, backend=recording, num_kv_pages=2048, max_model_len=2048,
        max_prefill_tokens=PREFILL_TOKENS,
    )  # fmt: skip
    together = made.generate(prompts, 6, chunk_tokens=PREFILL_TOKENS)
    assert together == made.generate(prompts, 6, chunk_tokens=1000)


def test_no_drift_over_four_thousand_tokens(small: Path, recording: CudaBackend) -> None:
    made = stepper(small, recording, max_model_len=4200)
    chunked = made.logits(ids(4096), [1000] * 4)
    single = made.logits(ids(4096), [1000] * 2 + [1] * 2096)
    np.testing.assert_allclose(single[-100:], chunked[-100:], atol=5e-4)
    reference = stepper(small, None, max_model_len=4200).logits(ids(4096), [1000] * 4)
    np.testing.assert_allclose(chunked[-100:], reference[-100:], atol=5e-4)


def ids(num_tokens: int) -> list[int]:
    return np.random.default_rng(num_tokens).integers(5, 300, num_tokens).tolist()
