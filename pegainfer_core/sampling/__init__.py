"""Token choice on the CPU, and the exact definition that device kernels must reproduce.

One row goes through: raw logits -> log-probabilities (raw log-softmax) -> masks (allowed ids, bad
sequences, min_tokens) -> logit_bias -> penalties -> argmax when greedy, else temperature -> top_k
-> top_p -> min_p -> draw. Masks, bias and penalties keep vLLM's documented order; top_k, top_p and
min_p keep that of Hugging Face's `generate`.
"""

from pegainfer_core.sampling.choice_device import ChoiceDevice
from pegainfer_core.sampling.device_step_sampler import DeviceStepSampler
from pegainfer_core.sampling.draw import choose_token
from pegainfer_core.sampling.host_step_sampler import HostStepSampler
from pegainfer_core.sampling.logprobs import row_logprobs
from pegainfer_core.sampling.making import make_step_sampler
from pegainfer_core.sampling.philox import philox4x32, request_seed, token_bits
from pegainfer_core.sampling.sampler import SampledToken, Sampler
from pegainfer_core.sampling.step_sampler import (
    ChoiceKind,
    ChoiceRow,
    PendingTokens,
    StepSampler,
)
from pegainfer_core.sampling.top import top_token_ids

__all__ = [
    "ChoiceDevice",
    "ChoiceKind",
    "ChoiceRow",
    "DeviceStepSampler",
    "HostStepSampler",
    "PendingTokens",
    "SampledToken",
    "Sampler",
    "StepSampler",
    "choose_token",
    "make_step_sampler",
    "philox4x32",
    "request_seed",
    "row_logprobs",
    "token_bits",
    "top_token_ids",
]
