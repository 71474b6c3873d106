"""What is kept of a reference run, and how it is stored."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from pegainfer_core.weights import Checkpoint
from tests.hf.cases import ALL_CASES, GOLDEN_DIR

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

DType = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class PromptGolden:
    """The reference's float32 run of one prompt.

    Attributes:
        dtype: What the checkpoint computes in; the run is of its weights in float32 either way.
        prompt: Token ids, [n].
        rows: Positions whose logits are kept, ascending, the last one included.
        logits: [rows, vocab].
        std: Deviation of all the logits kept.
        argmax: Best token at every position, [n].
        gap: Best minus second best logit at every position, [n].
        greedy: What follows the prompt, [64].
        greedy_gap: Best minus second best logit at each of those steps.
        bf16_error: Of the reference's own bfloat16 run: median over the rows of the root mean
            square error of the logits, over `std`. 0 for float32 checkpoints.
    """

    dtype: DType
    prompt: NDArray[np.int32]
    rows: NDArray[np.int32]
    logits: NDArray[np.float32]
    argmax: NDArray[np.int32]
    gap: NDArray[np.float32]
    greedy: NDArray[np.int32]
    greedy_gap: NDArray[np.float32]
    bf16_error: float

    @property
    def std(self) -> float:
        return float(self.logits.std())


@dataclass(frozen=True)
class Golden:
    """All prompts of a case, and the digest of the weights that they were run with."""

    case: str
    weights_sha256: str
    prompts: dict[int, PromptGolden]


_ARRAYS = ("prompt", "rows", "logits", "argmax", "gap", "greedy", "greedy_gap")


def save(golden: Golden) -> Path:
    arrays: dict[str, NDArray[np.generic]] = {}
    for length, prompt in golden.prompts.items():
        arrays |= {f"{name}_{length}": getattr(prompt, name) for name in _ARRAYS}
        arrays[f"bf16_error_{length}"] = np.float64(prompt.bf16_error)  # type: ignore[assignment]
    path = GOLDEN_DIR / f"{golden.case}.npz"
    GOLDEN_DIR.mkdir(exist_ok=True)
    np.savez_compressed(
        path,
        allow_pickle=False,
        lengths=np.array(sorted(golden.prompts)),
        weights_sha256=np.array(golden.weights_sha256),
        **arrays,
    )
    return path


def load(case: str) -> Golden:
    dtype: DType = "bfloat16" if ALL_CASES[case].get("dtype") == "bfloat16" else "float32"
    with np.load(GOLDEN_DIR / f"{case}.npz") as stored:
        prompts = {
            int(length): PromptGolden(
                dtype=dtype,
                bf16_error=float(stored[f"bf16_error_{length}"]),
                **{name: stored[f"{name}_{length}"] for name in _ARRAYS},
            )
            for length in stored["lengths"]
        }
        return Golden(case, str(stored["weights_sha256"]), prompts)


def kept_rows(num_tokens: int) -> NDArray[np.int32]:
    """About fourteen positions over the whole prompt, first and last included."""
    return np.unique(np.linspace(0, num_tokens - 1, 14).round()).astype(np.int32)


def top2(logits: NDArray[np.floating]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Best token and its lead, per row."""
    best = np.argmax(logits, axis=-1)
    top = np.partition(logits, -2, axis=-1)[..., -2:]
    return best.astype(np.int32), (top[..., 1] - top[..., 0]).astype(np.float32)


def median_error(logits: NDArray[np.floating], golden_logits: NDArray[np.float32]) -> float:
    """Median over rows of the root mean square difference, over the deviation of the golden."""
    difference = logits.astype(np.float64) - golden_logits
    per_row = np.sqrt((difference**2).mean(axis=-1))
    return float(np.median(per_row) / golden_logits.std())


def weights_digest(model_dir: Path) -> str:
    """SHA-256 over names and float32 values of all tensors."""
    digest = hashlib.sha256()
    with Checkpoint(model_dir) as checkpoint:
        for name in sorted(checkpoint.names()):
            digest.update(name.encode())
            digest.update(checkpoint.read_f32(name).astype("<f4").tobytes())
    return digest.hexdigest()
