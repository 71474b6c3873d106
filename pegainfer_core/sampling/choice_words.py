"""What a device must know of one row's choice, as int32 words at fixed places.

A row of zeros takes its best logit, hands it to nobody but the host and has no rules.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from pegainfer_core.sampling.mass import PEAK_MASS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.contract import SamplingParams

__all__ = [
    "ALLOWED",
    "BIASES",
    "FALLBACK",
    "HISTORY",
    "MASKS",
    "NUM_BIASES",
    "NUM_LOGPROBS",
    "NUM_MASKS",
    "POSITION",
    "SLOT",
    "SOURCE",
    "draws",
    "put_wide",
    "row_words",
]

FLAGS: Final = 0
SLOT: Final = 1
"""Plus one; 0 for none."""
FALLBACK: Final = 2
TOP_K: Final = 3
"""0 where it keeps everything."""
SCALE: Final = 4
FLOOR: Final = 5
"""Least mass that min_p keeps, rounded up to float32: masses are float32 values themselves."""
TOP_P: Final = 6
SEED: Final = 8
POSITION: Final = 10
SAMPLE: Final = 11
SOURCE: Final = 12
"""Address of the row's own logits, to which rules are applied; 0 for none."""
HISTORY: Final = 14
ALLOWED: Final = 16
BIASES: Final = 18
NUM_BIASES: Final = 20
NUM_MASKS: Final = 21
MASKS: Final = 22
REPETITION: Final = 24
FREQUENCY: Final = 25
PRESENCE: Final = 26
NUM_LOGPROBS: Final = 27
"""Most likely tokens to report, plus one; 0 for no report."""

DRAWS: Final = 1

_LARGEST: Final = float(np.finfo(np.float32).max)


def draws(params: SamplingParams, num_ids: int) -> bool:
    """Whether a request draws among `num_ids` ids instead of taking the best, see `draw`."""
    return not params.greedy and params.top_p * num_ids > 1


def row_words(
    params: SamplingParams, seed: int, sample_index: int, num_ids: int, num_words: int
) -> NDArray[np.int32]:
    """The words of a request that are the same in every step, but for its slot and tables.

    Args:
        params: Its settings.
        seed: Any 64 bits.
        sample_index: Which of several samples of one prompt this is.
        num_ids: Ids to choose from.
        num_words: Words of a row.

    Returns:
        [num_words] int32.
    """
    words = np.zeros(num_words, np.int32)
    reals = words.view(np.float32)
    if draws(params, num_ids):
        words[FLAGS] = DRAWS
        words[TOP_K] = params.top_k if 0 < params.top_k < num_ids else 0
        # As `token_masses` has it.
        reals[SCALE] = min(math.log2(math.e) / params.temperature, _LARGEST)
        reals[FLOOR] = _rounded_up(math.ceil(params.min_p * PEAK_MASS))
        words[TOP_P : TOP_P + 2] = np.array([params.top_p], np.float64).view(np.int32)
        put_wide(words, SEED, seed)
        words[SAMPLE : SAMPLE + 1] = np.array([sample_index & 0xFFFFFFFF], np.uint32).view(np.int32)
    reals[REPETITION] = params.repetition_penalty
    reals[FREQUENCY] = params.frequency_penalty
    reals[PRESENCE] = params.presence_penalty
    if params.logprobs is not None:
        words[NUM_LOGPROBS] = params.logprobs + 1
    return words


def put_wide(words: NDArray[np.int32], place: int, value: int) -> None:
    """Store 64 bits, low word first."""
    words[place : place + 2] = np.array([value & 0xFFFFFFFFFFFFFFFF], "<u8").view(np.int32)


def _rounded_up(mass: int) -> np.float32:
    rounded = np.float32(mass)
    return rounded if int(rounded) >= mass else np.nextafter(rounded, np.float32(np.inf))
