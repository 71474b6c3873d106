"""Makes the sampler that suits a backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.sampling.device_step_sampler import DeviceStepSampler
from pegainfer_core.sampling.host_step_sampler import HostStepSampler
from pegainfer_core.sampling.sampler import Sampler

if TYPE_CHECKING:
    from pegainfer_core.backend import Backend
    from pegainfer_core.sampling.step_sampler import StepSampler

__all__ = ["make_step_sampler"]


def make_step_sampler(
    backend: Backend, vocab_size: int, max_rows: int, engine_seed: int
) -> StepSampler:
    """A sampler of the tokens of steps.

    Args:
        backend: Where the logits lie; one that chooses on its device gives memory to it here.
        vocab_size: Columns of the logits.
        max_rows: Most rows that choose in a step, and slots of requests.
        engine_seed: Base seed of unseeded requests.
    """
    choice = backend.token_choice(vocab_size, max_rows)
    if choice is None:
        return HostStepSampler(Sampler(vocab_size, engine_seed), backend)
    return DeviceStepSampler(choice, engine_seed)
