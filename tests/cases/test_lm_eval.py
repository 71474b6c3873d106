"""lm-eval's loglikelihood tasks run over HTTP, and score as transformers' own model does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pegainfer_core.testing.tiny import tiny_qwen3
from tests.cases.conftest import Serve
from tests.cases.http_server import HttpServer

pytestmark = pytest.mark.hf

VOCAB = 1024
QUESTIONS = (
    ("The sky is", [" blue", " a kind of cheese"], 0),
    ("Two and two make", [" five", " four", " a pair"], 1),
    ("A day has", [" 24 hours", " 3 legs"], 0),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3(tmp_path_factory.mktemp("lm_eval") / "m", vocab=VOCAB)


@pytest.fixture(scope="module")
def shared(serve: Serve, folder: Path) -> HttpServer:
    return serve(folder)


def task(folder: Path) -> dict[str, Any]:
    """A multiple-choice task over a file."""
    file = folder.parent / "questions.jsonl"
    lines = [
        json.dumps({"question": question, "choices": choices, "label": label})
        for question, choices, label in QUESTIONS
    ]
    file.write_text("\n".join(lines))
    return {
        "task": "tiny_questions",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(file)}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{question}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "label",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc"}],
    }


def expected_scores(folder: Path) -> list[list[float]]:
    """Log-probability of each choice behind its question, from transformers."""
    from tests.hf.transformers_run import TransformersModel

    model = TransformersModel(folder)
    scores = []
    for question, choices, _ in QUESTIONS:
        scores.append([])
        for choice in choices:
            ids = np.frombuffer((question + choice).encode(), np.uint8).astype(np.int32)
            logits = model.logits(ids).astype(np.float64)
            logprobs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
            first = len(question.encode())
            places = np.arange(first, len(ids))
            scores[-1].append(float(logprobs[places - 1, ids[places]].sum()))
    return scores


@pytest.mark.parametrize("tokenized", [True, False])
@pytest.mark.filterwarnings("ignore")
def test_a_multiple_choice_task(
    server: HttpServer, folder: Path, tokenized: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_HOME", str(folder.parent / "hf_home"))
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    model_args = {
        "model": "m",
        "base_url": f"{server.url}/v1/completions",
        "tokenizer": str(folder),
        "tokenizer_backend": "huggingface",
        "tokenized_requests": tokenized,
        "num_concurrent": 1,
        "max_retries": 1,
        "max_length": 256,
    }
    found = simple_evaluate(
        model="local-completions",
        model_args=model_args,
        tasks=[task(folder)],
        batch_size=2,
        bootstrap_iters=0,
        log_samples=True,
        # Its own tasks, which are thousands, are not looked through.
        task_manager=TaskManager(include_defaults=False),
    )
    assert found is not None
    samples = sorted(found["samples"]["tiny_questions"], key=lambda sample: sample["doc_id"])
    scores = [[float(score) for score, _ in sample["filtered_resps"]] for sample in samples]
    for mine, theirs in zip(scores, expected_scores(folder), strict=True):
        assert mine == pytest.approx(theirs, abs=1e-2)
    best = [
        int(np.argmax(each)) == label for each, (_, _, label) in zip(scores, QUESTIONS, strict=True)
    ]
    assert found["results"]["tiny_questions"]["acc,none"] == pytest.approx(np.mean(best))
