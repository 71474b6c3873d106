"""The training loop: packed windows, AdamW, warm-up and cosine, best held-out weights kept.

Works on any causal language model of transformers that returns a loss; knows no family.
"""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from samples.build_folder import Stream
    from transformers import PreTrainedModel


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """Settings of one run.

    Attributes:
        num_steps: optimiser steps.
        batch_tokens: tokens per step.
        sequence_tokens: window length of most steps.
        long_sequence_tokens: window length of the last steps, so that long contexts were seen.
        long_share: share of the steps with long windows.
        peak_learning_rate: reached after the warm-up; a cosine leads down to a twentieth of it.
        limit_s: stop and keep what there is after this time.
    """

    num_steps: int = 6000
    batch_tokens: int = 32_768
    sequence_tokens: int = 512
    long_sequence_tokens: int = 2048
    long_share: float = 0.1
    peak_learning_rate: float = 3e-3
    warmup_steps: int = 200
    weight_decay: float = 0.1
    eval_every_steps: int = 250
    eval_windows: int = 256
    limit_s: float = 3600.0
    seed: int = 20


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """Figures for the model card; losses in nats per token."""

    device_name: str
    num_steps: int
    num_tokens: int
    train_loss: float
    held_out_loss: float
    elapsed_s: float


class _Windows:
    """Draws windows from a stream; half of them start where a unit starts."""

    def __init__(self, stream: Stream, device: torch.device, seed: int) -> None:
        self._token_ids = torch.from_numpy(stream.token_ids.astype(np.int32)).to(device)
        self._starts = stream.starts
        self._rng = np.random.default_rng(seed)

    def draw(self, num_windows: int, num_tokens: int) -> torch.Tensor:
        """Token ids [num_windows, num_tokens]."""
        last = self._token_ids.numel() - num_tokens
        if last < 0:
            raise ValueError(f"the stream is shorter than one window of {num_tokens} tokens")
        starts = self._rng.integers(0, last + 1, size=num_windows)
        half = num_windows // 2
        starts[:half] = np.minimum(self._rng.choice(self._starts, size=half), last)
        offsets = torch.from_numpy(starts).to(self._token_ids.device)[:, None]
        index = offsets + torch.arange(num_tokens, device=offsets.device)
        return self._token_ids[index].long()


def _learning_rate(plan: TrainingPlan, step: int) -> float:
    if step < plan.warmup_steps:
        return plan.peak_learning_rate * (step + 1) / plan.warmup_steps
    done = (step - plan.warmup_steps) / max(1, plan.num_steps - plan.warmup_steps)
    return plan.peak_learning_rate * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done)))


def _optimizer(model: PreTrainedModel, plan: TrainingPlan, *, fused: bool) -> torch.optim.AdamW:
    matrices = [p for p in model.parameters() if p.requires_grad and p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.requires_grad and p.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": plan.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95), fused=fused)


def _autocast(device: torch.device) -> AbstractContextManager[object]:
    return torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else nullcontext()


def _held_out_loss(model: PreTrainedModel, windows: list[torch.Tensor]) -> float:
    model.eval()
    with torch.no_grad(), _autocast(windows[0].device):
        losses = [model(input_ids=ids, labels=ids, use_cache=False).loss for ids in windows]
    model.train()
    return torch.stack(losses).mean().item()


def _batches(plan: TrainingPlan, windows: _Windows) -> Iterator[torch.Tensor]:
    first_long_step = round(plan.num_steps * (1 - plan.long_share))
    for step in range(plan.num_steps):
        length = plan.sequence_tokens if step < first_long_step else plan.long_sequence_tokens
        yield windows.draw(max(1, plan.batch_tokens // length), length)


def _step(
    model: PreTrainedModel, optimizer: torch.optim.AdamW, ids: torch.Tensor, rate: float
) -> torch.Tensor:
    for group in optimizer.param_groups:
        group["lr"] = rate
    with _autocast(ids.device):
        loss: torch.Tensor = model(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def train(
    model: PreTrainedModel, train_stream: Stream, held_out: Stream, plan: TrainingPlan
) -> TrainingResult:
    """Train in place; the model ends with the weights of the lowest held-out loss.

    Raises:
        ValueError: a stream is shorter than one window.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device).train()
    windows = _Windows(train_stream, device, plan.seed)
    held = _Windows(held_out, device, plan.seed)
    rows = max(1, min(32, plan.batch_tokens // plan.sequence_tokens))
    held_batches = [
        held.draw(rows, plan.sequence_tokens) for _ in range(max(1, plan.eval_windows // rows))
    ]
    optimizer = _optimizer(model, plan, fused=device.type == "cuda")
    best_loss, best_weights = math.inf, {}
    recent: list[torch.Tensor] = []
    began_s = time.monotonic()
    done, train_loss = 0, 0.0
    for step, ids in enumerate(_batches(plan, windows)):
        recent.append(_step(model, optimizer, ids, _learning_rate(plan, step)))
        done = step + 1
        elapsed_s = time.monotonic() - began_s
        last = done == plan.num_steps or elapsed_s > plan.limit_s
        if done % plan.eval_every_steps and not last:
            continue
        train_loss = torch.stack(recent).mean().item()
        recent.clear()
        held_loss = _held_out_loss(model, held_batches)
        elapsed_s = time.monotonic() - began_s
        rate = done * plan.batch_tokens / elapsed_s
        print(
            f"step {done:5d}  train {train_loss:.4f}  held out {held_loss:.4f}  "
            f"{elapsed_s:6.1f} s  {rate:,.0f} tokens/s",
            flush=True,
        )
        if held_loss < best_loss:
            best_loss = held_loss
            best_weights = {k: v.detach().clone() for k, v in model.state_dict().items()}
        if last:
            break
    model.load_state_dict(best_weights)
    return TrainingResult(
        device_name=torch.cuda.get_device_name() if device.type == "cuda" else "CPU",
        num_steps=done,
        num_tokens=done * plan.batch_tokens,
        train_loss=train_loss,
        held_out_loss=best_loss,
        elapsed_s=time.monotonic() - began_s,
    )
