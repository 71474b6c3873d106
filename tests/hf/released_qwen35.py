"""Qwen3.5 as it is released, nested and tied, with random weights, against transformers.

Runs on any backend and at any size: on a CPU small, to hold these lines themselves to something.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.testing.tiny import edit_config, tiny_qwen35
from plugins.pegainfer_qwen35.tests.stepper import Stepper
from tests.hf.teacher_forced import TeacherForced, ask, random_texts
from tests.hf.transformers_run import TransformersModel

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pegainfer_core.backend import Backend
    from pegainfer_core.weights import FloatType
    from tests.hf.teacher_forced import Reference

#: Arguments of `tiny_qwen35`: what 0.8B has.
RELEASED: dict[str, object] = {
    "hidden": 1024,
    "intermediate": 3584,
    "kinds": "LLLF" * 6,
    "heads": (8, 2),
    "head_dim": 256,
    "linear_heads": (16, 16),
    "linear_dims": (128, 128),
    "vocab": 248_320,
    "partial_rotary_factor": 0.25,
    "rope_theta": 10_000_000.0,
    "max_position_embeddings": 262_144,
    "deep": True,
}
#: As many layers of as many kinds, a tenth as wide.
NARROW: dict[str, object] = RELEASED | {
    "hidden": 128,
    "intermediate": 352,
    "head_dim": 64,
    "linear_heads": (4, 4),
    "linear_dims": (32, 32),
    "vocab": 2000,
}


class Released:
    """A checkpoint, and what transformers makes of some texts.

    Args:
        folder: Where it is written.
        sizes: Arguments of `tiny_qwen35`.
        lengths: Tokens of the texts.
        device: Where transformers runs, by torch's name.
    """

    def __init__(
        self, folder: Path, sizes: dict[str, object], lengths: Sequence[int], device: str
    ) -> None:
        self._folder = tiny_qwen35(
            folder,
            tied=True,
            nested=True,
            dtype="bfloat16",
            seed=41,
            **sizes,  # type: ignore[arg-type]
        )
        self._texts = random_texts(lengths, int(str(sizes["vocab"])))
        exact = TransformersModel(folder, "float32", device)
        rounded = TransformersModel(folder, "bfloat16", device)
        self._references: list[Reference] = ask(exact, rounded, self._texts)

    def run_on(self, backend: Backend | None, dtype: FloatType) -> TeacherForced:
        """The same checkpoint in the engine, computed in a type; None is NumPy."""
        edit_config(self._folder, lambda config: config["text_config"].update(dtype=dtype))  # type: ignore[attr-defined]
        num_pages = sum(len(text) // 16 + 1 for text in self._texts)
        stepper = Stepper(
            self._folder,
            backend=backend,
            max_num_seqs=64,
            max_prefill_tokens=4096,
            max_model_len=4096,
            num_kv_pages=max(num_pages, 4096 // 16) + 16,
            prefix_cache=False,
        )
        return TeacherForced(stepper, self._texts, self._references)
