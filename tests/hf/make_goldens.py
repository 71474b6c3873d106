"""Makes the goldens with torch and transformers: `python -m tests.hf.make_goldens [CASE ...]`.

Only the goldens are committed; the checkpoints are made by NumPy wherever they are needed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.hf.cases import ALL_CASES, NUM_GREEDY_TOKENS, PROMPT_LENGTHS, build, prompt
from tests.hf.golden import (
    Golden,
    PromptGolden,
    kept_rows,
    median_error,
    save,
    top2,
    weights_digest,
)
from tests.hf.transformers_run import TransformersModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

NUM_ATTEMPTS = 16
#: A path that soon repeats itself tests little.
MIN_DISTINCT_TOKENS = 12
MAX_GOLDEN_BYTES = 400_000


def choose_prompt(case: str, num_tokens: int, model: TransformersModel) -> NDArray[np.int32]:
    """The candidate whose greedy path has the widest narrowest lead, among the varied ones.

    Free-running equality of another implementation is a fair test only on a path where rounding
    decides nothing.
    """
    candidates = [prompt(case, num_tokens, attempt) for attempt in range(NUM_ATTEMPTS)]
    tokens, leads = model.greedy(candidates, NUM_GREEDY_TOKENS)
    varied = [len(set(path.tolist())) >= MIN_DISTINCT_TOKENS for path in tokens]
    ranked = sorted(range(NUM_ATTEMPTS), key=lambda i: (varied[i], leads[i].min()))
    if not any(varied):
        raise SystemExit(f"{case}: every greedy path of {num_tokens} prompt tokens is a short loop")
    return candidates[ranked[-1]]


def run_prompt(
    token_ids: NDArray[np.int32], model: TransformersModel, model_bf16: TransformersModel | None
) -> PromptGolden:
    logits = model.logits(token_ids)
    rows = kept_rows(token_ids.size)
    argmax, gap = top2(logits)
    greedy, greedy_gap = model.greedy([token_ids], NUM_GREEDY_TOKENS)
    error = 0.0
    if model_bf16 is not None:
        error = median_error(model_bf16.logits(token_ids)[rows], logits[rows])
    return PromptGolden(
        dtype="float32" if model_bf16 is None else "bfloat16",
        prompt=token_ids,
        rows=rows,
        logits=logits[rows],
        argmax=argmax,
        gap=gap,
        greedy=greedy[0],
        greedy_gap=greedy_gap[0],
        bf16_error=error,
    )


def make(case: str, model_dir: Path, known: Mapping[int, PromptGolden] | None = None) -> Golden:
    """Build a case's checkpoint and run it, with the prompts of a known golden if there is one."""
    build(case, model_dir)
    model = TransformersModel(model_dir)
    is_bf16 = ALL_CASES[case].get("dtype") == "bfloat16"
    model_bf16 = TransformersModel(model_dir, "bfloat16") if is_bf16 else None
    token_ids = {
        length: known[length].prompt if known else choose_prompt(case, length, model)
        for length in PROMPT_LENGTHS
    }
    prompts = {n: run_prompt(ids, model, model_bf16) for n, ids in token_ids.items()}
    return Golden(case, weights_digest(model_dir), prompts)


def main() -> None:
    for case in sys.argv[1:] or ALL_CASES:
        with tempfile.TemporaryDirectory() as folder:
            golden = make(case, Path(folder) / case)
        path = save(golden)
        leads = {n: round(float(p.greedy_gap.min()), 3) for n, p in golden.prompts.items()}
        kinds = {n: len(set(p.greedy.tolist())) for n, p in golden.prompts.items()}
        errors = {n: round(p.bf16_error, 4) for n, p in golden.prompts.items() if p.bf16_error}
        stds = {n: round(p.std, 2) for n, p in golden.prompts.items()}
        print(
            f"{case}: {path.stat().st_size} bytes, least lead {leads}, distinct tokens {kinds},",
            f"std {stds}, bf16 error {errors}",
            flush=True,
        )
        if path.stat().st_size > MAX_GOLDEN_BYTES:
            raise SystemExit(f"{path} is larger than {MAX_GOLDEN_BYTES} bytes")


if __name__ == "__main__":
    main()
