"""Runs transformers on a checkpoint folder, and refuses one that did not load exactly."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy as np
import torch
import transformers

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

transformers.utils.logging.disable_progress_bar()
# Tiny products gain nothing from more threads, and on a busy machine they wait for each other.
torch.set_num_threads(1)
# float32 must be float32 to the last product, those of convolutions too.
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
torch.backends.cudnn.allow_tf32 = False

_TOKENS_AT_ONCE = 1 << 13
_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class TransformersModel:
    """transformers' own model with eager attention; of a multimodal one the text model.

    Raises:
        RuntimeError: A tensor is missing, is not expected, or has another shape: transformers
            itself would leave it at random values and say so only in its log.
    """

    def __init__(
        self,
        model_dir: Path,
        dtype: Literal["float32", "bfloat16"] = "float32",
        device: str = "cpu",
    ) -> None:
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            model_dir,
            dtype=_TYPES[dtype],
            attn_implementation="eager",
            output_loading_info=True,
        )
        faults = {key: sorted(map(str, found)) for key, found in info.items() if found}
        if faults:
            raise RuntimeError(f"{model_dir} did not load exactly: {faults}")
        self._model = model.eval().to(device)

    @torch.no_grad()
    def logits(self, token_ids: NDArray[np.integer]) -> NDArray[np.float32]:
        """Logits of every position, [n, vocab], from one uncached forward."""
        ids = torch.from_numpy(np.asarray(token_ids, np.int64))[None]
        return self._model(input_ids=ids, use_cache=False).logits[0].float().numpy()

    def last_logits(self, sequences: list[list[int]], count: int) -> torch.Tensor:
        """As `last_logits`."""
        return last_logits(self._model, sequences, count)

    @torch.no_grad()
    def greedy(
        self, prompts: list[NDArray[np.int32]], num_tokens: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Greedy continuations of prompts of one length, end tokens ignored, with a KV cache.

        Returns:
            Token ids and the lead of the best logit over the second, both [prompts, num_tokens].
        """
        ids = torch.from_numpy(np.stack(prompts).astype(np.int64))
        cache = None
        chosen, leads = [], []
        for _ in range(num_tokens):
            result = self._model(input_ids=ids, cache=cache, use_cache=True)
            cache = result.cache
            logits = result.logits[:, -1].float()
            best = logits.topk(2, dim=-1).values
            # argmax, not topk: it takes the lowest index of equal logits.
            ids = logits.argmax(dim=-1, keepdim=True)
            chosen.append(ids[:, 0].numpy().astype(np.int32))
            leads.append((best[:, 0] - best[:, 1]).numpy())
        return np.stack(chosen, axis=1), np.stack(leads, axis=1)


@torch.no_grad()
def last_logits(
    model: transformers.PreTrainedModel, sequences: list[list[int]], count: int
) -> torch.Tensor:
    """Logits of the last `count` positions, from uncached forwards.

    Args:
        model: A causal language model.
        sequences: Of one length.
        count: Positions.

    Returns:
        [sequences, count, vocab] float32, on the model's device.
    """
    rows = max(_TOKENS_AT_ONCE // len(sequences[0]), 1)
    parts = []
    for start in range(0, len(sequences), rows):
        ids = torch.tensor(sequences[start : start + rows], device=model.device)
        result = model(input_ids=ids, use_cache=False, logits_to_keep=count)
        parts.append(result.logits.float())
    return torch.cat(parts)
