"""Whether another implementation's logits agree with a golden.

float32: no kept logit is off by more than a tolerance, and every position has the same best token
unless the reference itself nearly has two. bfloat16: the typical error is at most 1.5 times that of
the reference's own bfloat16 run, and the best token is the same wherever its lead is well above
that error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tests.hf.golden import PromptGolden, median_error

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Largest difference of NumPy's and torch's float32 logits that is still rounding.
NUMPY_TOLERANCE = 2e-4
#: The same for a GPU's float32 products.
GPU_TOLERANCE = 2e-3
_BF16_ALLOWANCE = 1.5
_BF16_LEAD = 6.0


@dataclass(frozen=True)
class GateResult:
    """The verdict and what it rests on; `faults` is empty when it passed."""

    max_abs_error: float
    relative_error: float
    num_other_tokens: int
    faults: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.faults


def compare(
    logits: NDArray[np.floating], golden: PromptGolden, *, tolerance: float = NUMPY_TOLERANCE
) -> GateResult:
    """Judge the logits of a golden's whole prompt, [n, vocab], by the rule of its type."""
    if logits.shape != (golden.prompt.size, golden.logits.shape[1]):
        raise ValueError(f"logits have shape {logits.shape}; expected all positions and tokens")
    kept = logits[golden.rows]
    max_abs_error = float(np.abs(kept - golden.logits).max())
    relative_error = median_error(kept, golden.logits)
    faults = []
    if not np.isfinite(logits).all():
        faults.append("logits are not finite")
    if golden.dtype == "float32":
        lead = 2 * tolerance
        if not max_abs_error <= tolerance:
            faults.append(f"a logit is off by {max_abs_error:.2e}; at most {tolerance:.0e}")
    else:
        allowed = _BF16_ALLOWANCE * golden.bf16_error
        lead = _BF16_LEAD * relative_error * golden.std
        if not relative_error <= allowed:
            faults.append(f"the typical error is {relative_error:.4f}; at most {allowed:.4f}")
    other = (logits.argmax(axis=-1) != golden.argmax) & (golden.gap > lead)
    if other.any():
        at = ", ".join(str(position) for position in np.flatnonzero(other)[:5])
        faults.append(f"another token is best at position {at}, though the lead is clear")
    return GateResult(max_abs_error, relative_error, int(other.sum()), tuple(faults))


def compare_greedy(token_ids: list[int], golden: PromptGolden) -> GateResult:
    """Judge a greedy continuation of a float32 golden: it must be the same to the last token."""
    expected = golden.greedy.tolist()
    wrong = [i for i, pair in enumerate(zip(token_ids, expected, strict=False)) if len({*pair}) > 1]
    faults = []
    if len(token_ids) != len(expected):
        faults.append(f"{len(token_ids)} tokens instead of {len(expected)}")
    if wrong:
        at = wrong[0]
        faults.append(f"token {at} is {token_ids[at]}, not {expected[at]}")
    return GateResult(0.0, 0.0, len(wrong), tuple(faults))
