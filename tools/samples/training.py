"""The training loop: packed windows, AdamW, warm-up and cosine, best held-out weights kept.

Works on any causal language model of transformers that returns a loss; knows no family.
"""

from __future__ import annotations

import math
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from samples.windows import Windows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from transformers import PreTrainedModel

    from samples.build_folder import Stream


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
        dropout: share of the embeddings and of the normed layer inputs zeroed while training.
        limit_s: the run is over by then; where steps are too slow for all of them, windows and
            learning rate go their way in this time instead.
    """

    num_steps: int = 2500
    batch_tokens: int = 49_152
    sequence_tokens: int = 512
    long_sequence_tokens: int = 2048
    long_share: float = 0.1
    peak_learning_rate: float = 3e-3
    warmup_steps: int = 200
    weight_decay: float = 0.1
    dropout: float = 0.1
    eval_every_steps: int = 250
    eval_windows: int = 256
    limit_s: float = 3600.0
    seed: int = 20


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """Figures for the model card; losses in nats per token.

    `limit_s` is the plan's where the run was shortened to it.
    """

    device_name: str
    num_steps: int
    num_tokens: int
    train_loss: float
    held_out_loss: float
    elapsed_s: float
    limit_s: float | None = None


class _Schedule:
    """Where a run is between its first step and its last, by steps or by time."""

    def __init__(self, plan: TrainingPlan) -> None:
        self._plan = plan
        self._began_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    def done(self, step: int) -> float:
        """Share of the run before a step; 1 from the end on."""
        plan = self._plan
        return min(max(step / plan.num_steps, self.elapsed_s / plan.limit_s), 1.0)

    def window_tokens(self, done: float) -> int:
        plan = self._plan
        long = done >= 1 - plan.long_share
        return plan.long_sequence_tokens if long else plan.sequence_tokens

    def learning_rate(self, step: int, done: float) -> float:
        plan = self._plan
        if step < plan.warmup_steps:
            return plan.peak_learning_rate * (step + 1) / plan.warmup_steps
        warm = plan.warmup_steps / plan.num_steps
        share = max(done - warm, 0.0) / (1 - warm)
        return plan.peak_learning_rate * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * share)))


def _optimizer(model: PreTrainedModel, plan: TrainingPlan, *, fused: bool) -> torch.optim.AdamW:
    matrices = [p for p in model.parameters() if p.requires_grad and p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.requires_grad and p.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": plan.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95), fused=fused)


@contextmanager
def _dropout(model: PreTrainedModel, share: float) -> Iterator[None]:
    """Add the dropout that these architectures lack: the corpus is small and seen many times."""

    def drop(module: torch.nn.Module, _: object, output: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(output, share, training=module.training)

    names = ("embed_tokens", "input_layernorm", "post_attention_layernorm")
    modules = [m for name, m in model.named_modules() if name.endswith(names)]
    handles = [module.register_forward_hook(drop) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _autocast(device: torch.device) -> AbstractContextManager[object]:
    return torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else nullcontext()


def _loss(model: PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = model(input_ids=ids, labels=ids, use_cache=False).loss
    return loss


def _step(
    model: PreTrainedModel, optimizer: torch.optim.AdamW, ids: torch.Tensor, rate: float
) -> torch.Tensor:
    for group in optimizer.param_groups:
        group["lr"] = rate
    with _autocast(ids.device):
        loss = _loss(model, ids)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


class _HeldOut:
    """Measures the held-out loss and keeps the best weights seen."""

    def __init__(self, stream: Stream, plan: TrainingPlan, device: torch.device) -> None:
        windows = Windows(stream, device, plan.seed)
        rows = max(1, min(32, plan.batch_tokens // plan.sequence_tokens))
        num_batches = max(1, plan.eval_windows // rows)
        self._batches = [windows.draw(rows, plan.sequence_tokens) for _ in range(num_batches)]
        self._weights: dict[str, torch.Tensor] = {}
        self.best_loss = math.inf

    def measure(self, model: PreTrainedModel) -> float:
        """Loss in nats per token; remembers the weights if it is the lowest so far."""
        model.eval()
        with torch.no_grad(), _autocast(self._batches[0].device):
            losses = [
                model(input_ids=ids, labels=ids, use_cache=False).loss for ids in self._batches
            ]
        model.train()
        loss = float(torch.stack(losses).mean().item())
        if loss < self.best_loss:
            self.best_loss = loss
            self._weights = {k: v.detach().clone() for k, v in model.state_dict().items()}
        return loss

    def restore(self, model: PreTrainedModel) -> None:
        """Give the model its best weights back."""
        if not self._weights:
            raise ValueError("no finite held-out loss was measured: lower the learning rate")
        model.load_state_dict(self._weights)


def train(
    model: PreTrainedModel, train_stream: Stream, held_out_stream: Stream, plan: TrainingPlan
) -> TrainingResult:
    """Train in place; the model ends with the weights of the lowest held-out loss.

    Raises:
        ValueError: a stream is shorter than one window, or the loss was never finite.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device).train()
    held_out = _HeldOut(held_out_stream, plan, device)
    optimizer = _optimizer(model, plan, fused=device.type == "cuda")
    recent: list[torch.Tensor] = []
    windows, schedule = Windows(train_stream, device, plan.seed), _Schedule(plan)
    step, train_loss, last = 0, math.nan, False
    with _dropout(model, plan.dropout):
        while not last:
            done = schedule.done(step)
            length = schedule.window_tokens(done)
            ids = windows.draw(max(1, plan.batch_tokens // length), length)
            recent.append(_step(model, optimizer, ids, schedule.learning_rate(step, done)))
            step += 1
            last = schedule.done(step) == 1
            if step % plan.eval_every_steps == 0 or last:
                train_loss = torch.stack(recent).mean().item()
                recent.clear()
                loss = held_out.measure(model)
                _print_progress(step, plan, train_loss, loss, schedule.elapsed_s)
    held_out.restore(model)
    return TrainingResult(
        device_name=torch.cuda.get_device_name() if device.type == "cuda" else "CPU",
        num_steps=step,
        num_tokens=step * plan.batch_tokens,
        train_loss=train_loss,
        held_out_loss=held_out.best_loss,
        elapsed_s=schedule.elapsed_s,
        limit_s=plan.limit_s if step < plan.num_steps else None,
    )


def _print_progress(
    done: int, plan: TrainingPlan, train_loss: float, held_out_loss: float, elapsed_s: float
) -> None:
    rate = done * plan.batch_tokens / elapsed_s
    print(
        f"step {done:5d}  train {train_loss:.4f}  held out {held_out_loss:.4f}  "
        f"{elapsed_s:6.1f} s  {rate:,.0f} tokens/s",
        flush=True,
    )
