"""The tiny checkpoints that goldens exist for, and the prompts they are made from."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pegainfer_core.testing.tiny import tiny_qwen3, tiny_qwen35

GOLDEN_DIR = Path(__file__).parent / "goldens"

#: Shorter than a page, between pages, over several pages and past a chunk.
PROMPT_LENGTHS = (5, 37, 130)
NUM_GREEDY_TOKENS = 64

#: Arguments of `tiny_qwen3` by case. Together they cover every group size, both heads, the RoPE
#: forms, shards, both spellings of config.json and an eps that shows where it is added.
CASES: dict[str, dict[str, Any]] = {
    "gqa1": {"heads": (4, 4), "seed": 1},
    "gqa2": {"heads": (4, 2), "layers": 4, "seed": 2},
    "gqa4": {"heads": (4, 1), "seed": 3, "eps": 1e-2},
    "gqa5": {"heads": (5, 1), "seed": 4},
    "gqa8": {"heads": (8, 1), "seed": 5, "head_dim": 64},
    "tied": {"tied": True, "eps": 1e-2, "seed": 6, "layers": 4},
    "yarn": {"rope": "yarn", "old_style_config": True, "seed": 7},
    "linear": {"rope": "linear", "seed": 8},
    "sharded": {"shards": 3, "seed": 9, "head_dim": 128},
    "head_dim_32": {"hidden": 64, "intermediate": 128, "head_dim": 32, "seed": 10},
    "head_dim_16": {"hidden": 64, "intermediate": 128, "head_dim": 16, "seed": 11},
    "theta_500k": {"rope_theta": 500_000.0, "seed": 12},
    "theta_10k": {"rope_theta": 10_000.0, "seed": 12},
    "bf16": {
        "dtype": "bfloat16",
        "old_style_config": True,
        "layers": 4,
        "head_dim": 128,
        "seed": 13,
    },
    "bf16_tied": {
        "dtype": "bfloat16",
        "tied": True,
        "heads": (8, 2),
        "layers": 4,
        "eps": 1e-2,
        "seed": 14,
    },
}

#: Arguments of `tiny_qwen35` by case: value heads per key head 1, 2, 3 and 4, several groups of
#: query heads, keys and values of other widths, short and long convolutions, real head sizes.
QWEN35_CASES: dict[str, dict[str, Any]] = {
    "qwen35_ratio1": {"linear_heads": (2, 2), "heads": (4, 4), "seed": 21},
    "qwen35_ratio2": {"kinds": "LLLF", "heads": (4, 2), "seed": 22},
    "qwen35_ratio3": {"linear_heads": (2, 6), "linear_dims": (16, 32), "heads": (6, 1), "seed": 23},
    "qwen35_ratio4": {"linear_heads": (1, 4), "linear_dims": (64, 16), "seed": 24, "eps": 1e-2},
    "qwen35_tied": {"tied": True, "eps": 1e-2, "kinds": "LFLF", "seed": 25},
    "qwen35_nested": {"nested": True, "shards": 3, "conv_taps": 3, "seed": 26},
    "qwen35_sizes": {
        "hidden": 64,
        "intermediate": 128,
        "kinds": "LF",
        "head_dim": 256,
        "linear_heads": (1, 2),
        "linear_dims": (128, 128),
        "partial_rotary_factor": 0.25,
        "rope_theta": 10_000_000.0,
        "seed": 27,
    },
    "qwen35_bf16": {"dtype": "bfloat16", "kinds": "LLLF", "head_dim": 64, "seed": 28},
    "qwen35_bf16_tied": {
        "dtype": "bfloat16",
        "tied": True,
        "nested": True,
        "linear_heads": (2, 6),
        "heads": (6, 1),
        "kinds": "LLFL",
        "eps": 1e-2,
        "seed": 29,
    },
}
ALL_CASES = CASES | QWEN35_CASES


def build(case: str, model_dir: Path) -> Path:
    """Write the checkpoint of a case into a new folder."""
    if case in QWEN35_CASES:
        return tiny_qwen35(model_dir, **QWEN35_CASES[case])
    return tiny_qwen3(model_dir, **CASES[case])


def small_qwen35(model_dir: Path) -> Path:
    """One layer of each kind, for tests of many steps; there is no golden of it."""
    return tiny_qwen35(
        model_dir,
        kinds="LF",
        hidden=64,
        intermediate=96,
        vocab=300,
        linear_dims=(16, 16),
        seed=31,
    )


def prompt(case: str, num_tokens: int, attempt: int) -> npt.NDArray[np.int32]:
    """One of the candidate prompts of a case: the same ids on every machine."""
    vocab = ALL_CASES[case].get("vocab", 1000)
    bits = np.random.Philox(key=np.array([num_tokens, attempt], np.uint64))
    return (bits.random_raw(num_tokens) % np.uint64(vocab)).astype(np.int32)
