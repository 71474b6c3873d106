"""Released sizes with random weights, on the engine's backend and in transformers."""

from __future__ import annotations

import json
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from pegainfer_qwen3.config import parse_config
from pegainfer_qwen3.weights import model_specs

from pegainfer_core.backend import DType
from pegainfer_core.backend.cuda.arrays import address, dense
from pegainfer_core.backend.cuda.device import host_address
from pegainfer_core.weights import DummyCheckpoint, ParameterLoader
from plugins.pegainfer_qwen3.tests.stepper import Stepper
from tests.gpu.torch_qwen3 import TorchQwen3, as_torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from pegainfer_core.backend import Tensor
    from pegainfer_core.backend.cuda import CudaBackend

SEED = 11
NUM_FORCED = 4
"""Tokens at the end of each sequence that are decoded one by one."""

#: Tokens of the sequences, taken in turn: inside a page, over pages, over parts of a context.
LENGTHS = (6, 21, 41, 68, 300)
MOST_ROWS = 200
LONG = (601, 1500, 2603)

SIZES: dict[str, dict[str, object]] = {
    "0.6B": {
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
    },
    "4B": {
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
    },
}
_SPARE_BYTES = 12 << 30


class Reference(NamedTuple):
    """transformers' answers for one sequence, at its last `NUM_FORCED` + 1 positions.

    Attributes:
        logits: [positions, vocab] of the float32 run.
        gap: [positions] best minus second best.
        error: [positions] root mean square error of transformers' own bfloat16 run.
    """

    logits: torch.Tensor
    gap: torch.Tensor
    error: torch.Tensor


class FullSize:
    """A model, and what transformers makes of the same weights.

    Attributes:
        stepper: Runs the engine's side.
        sequences: Token ids: `MOST_ROWS` of mixed lengths, then the long ones.
        references: Parallel to `sequences`.
        std: Deviation of the float32 logits.
    """

    def __init__(self, name: str, folder: Path, backend: CudaBackend) -> None:
        self.backend = backend
        self.config = _fitting(SIZES[name], backend)
        (folder / "config.json").write_text(json.dumps(self.config))
        vocab = int(str(self.config["vocab_size"]))
        random = np.random.default_rng(5)
        lengths = [LENGTHS[i % len(LENGTHS)] for i in range(MOST_ROWS)] + list(LONG)
        self.sequences: list[list[int]] = [
            random.integers(0, vocab, length).tolist() for length in lengths
        ]
        self.references = self._ask_transformers()
        self.std = float(torch.stack([made.logits.std() for made in self.references]).mean())
        self.stepper = Stepper(
            folder,
            backend=backend,
            load_format="dummy",
            seed=SEED,
            max_num_seqs=256,
            max_prefill_tokens=4096,
            max_model_len=4096,
            num_kv_pages=sum(-(-length // 16) for length in lengths) + 16,
        )

    def run(self, rows: list[int]) -> list[torch.Tensor]:
        """The engine's logits of some sequences, side by side: prefill, then one token a step.

        Returns:
            [positions, vocab] of each, as in `Reference`.
        """
        stepper, texts = self.stepper, [self.sequences[row] for row in rows]
        states = [stepper.sequence(text[:-NUM_FORCED], NUM_FORCED + 1) for text in texts]
        found: list[list[torch.Tensor]] = [[] for _ in rows]
        self._prefill(states, found)
        for step in range(NUM_FORCED):
            for state, text in zip(states, texts, strict=True):
                state.token_ids[-1] = text[len(text) - NUM_FORCED + step]
            stepper.step([(state, 1) for state in states])
            self._take(found)
        stepper.release(*states)
        return [torch.stack(logits) for logits in found]

    def _prefill(self, states: list, found: list[list[torch.Tensor]]) -> None:
        """As many whole prompts a step as it takes, the last of them in two chunks."""
        at = 0
        while at < len(states):
            work, budget = [], 4096
            while at < len(states) and states[at].num_uncomputed <= budget:
                budget -= states[at].num_uncomputed
                work.append((states[at], states[at].num_uncomputed))
                at += 1
            last, count = work[-1]
            if count > 40:
                self.stepper.step([(last, count - 23)])
                work[-1] = (last, 23)
            self.stepper.step(work)
            self._take(found[at - len(work) : at])

    def _take(self, found: list[list[torch.Tensor]]) -> None:
        """Copy the logits that the last step left, one row for each of its sequences."""
        self.backend.device.synchronize()
        logits = as_torch(self.stepper.model.logits_buffer)
        for row, taken in enumerate(found):
            taken.append(logits[row].clone())
        torch.cuda.synchronize()

    def _ask_transformers(self) -> list[Reference]:
        count = NUM_FORCED + 1
        parameters = self._parameters()
        rounded = TorchQwen3(self.config, parameters)
        exact = TorchQwen3(self.config, {name: p.float() for name, p in parameters.items()})
        made: dict[int, Reference] = {}
        for length in {*LENGTHS, *LONG}:
            rows = [i for i, text in enumerate(self.sequences) if len(text) == length]
            texts = [self.sequences[row] for row in rows]
            logits = exact.last_logits(texts, count)
            error = rms(rounded.last_logits(texts, count) - logits)
            best = logits.topk(2, dim=-1).values
            for row, *parts in zip(rows, logits, best[..., 0] - best[..., 1], error, strict=True):
                made[row] = Reference(*parts)
        return [made[row] for row in range(len(self.sequences))]

    def _parameters(self) -> dict[str, torch.Tensor]:
        """The checkpoint's tensors one by one, by the device's own generator."""
        specs = model_specs(parse_config(self.config))
        with DummyCheckpoint(specs, seed=SEED, dtype="bfloat16") as source:
            loader = ParameterLoader(source, specs, dtype="bfloat16", rename=str, ignore=())
            held = {name: self.backend.load(loader, [name], DType.BFLOAT16) for name in specs}
            self.backend.end_loading()
        return {name: as_torch(tensor) for name, tensor in held.items()}


class Verdict(NamedTuple):
    """How far logits are from the reference.

    Attributes:
        error: Median over positions of the root mean square error, over the logits' deviation.
        allowed: 1.5 times the same of transformers' bfloat16 run.
        num_other: Positions where another token is best although the lead is clear.
        num_clear: Positions where the lead is clear.
    """

    error: float
    allowed: float
    num_other: int
    num_clear: int

    @property
    def passed(self) -> bool:
        return self.error <= self.allowed and not self.num_other


def judge(found: list[torch.Tensor], references: list[Reference], std: float) -> Verdict:
    """Compare logits of some sequences with the reference's."""
    logits, expected = torch.cat(found), torch.cat([made.logits for made in references])
    assert torch.isfinite(logits).all()
    error = rms(logits - expected).median()
    allowed = 1.5 * torch.cat([made.error for made in references]).median()
    clear = torch.cat([made.gap for made in references]) > 6 * error
    other = (logits.argmax(-1) != expected.argmax(-1)) & clear
    return Verdict(float(error) / std, float(allowed) / std, int(other.sum()), int(clear.sum()))


def rms(difference: torch.Tensor) -> torch.Tensor:
    """Root mean square over the last axis."""
    return difference.square().mean(-1).sqrt()


@contextmanager
def overwritten(
    backend: CudaBackend, tensors: list[Tensor], values: list[NDArray[np.float32]]
) -> Iterator[None]:
    """Other values in device tensors, for a while; recordings see them too."""
    device, kept = backend.device, []
    for tensor, value in zip(tensors, values, strict=True):
        held = dense(np.ascontiguousarray(np.broadcast_to(value, tensor.shape)), tensor.dtype)
        copy = device.allocate(held.nbytes)
        device.copy(copy.address, address(tensor), held.nbytes)
        device.upload(address(tensor), host_address(held), held.nbytes)
        device.synchronize()
        kept.append((tensor, copy, held.nbytes))
    try:
        yield
    finally:
        for tensor, copy, num_bytes in kept:
            device.copy(address(tensor), copy.address, num_bytes)
        device.synchronize()


def _fitting(sizes: dict[str, object], backend: CudaBackend) -> dict[str, object]:
    """config.json of a size, with fewer layers where the device is too small for all.

    Held at once: the parameters in bfloat16 twice, for the engine and transformers, and in float32.
    """
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "dtype": "bfloat16",
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        **sizes,
    }
    specs = model_specs(parse_config(config))
    num_values = [math.prod(spec.shape) for spec in specs.values()]
    whole = int(str(config["num_hidden_layers"]))
    layer_bytes = 8 * (sum(num_values) - num_values[0]) // whole
    room = backend.device.memory()[0] - _SPARE_BYTES - 8 * num_values[0]
    config["num_hidden_layers"] = max(min(whole, room // layer_bytes), 2)
    return config
