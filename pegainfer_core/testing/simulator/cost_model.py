"""How long a step takes on a device, from what it computes. Knows no scheduler and no clock."""

from __future__ import annotations

from math import hypot
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from pegainfer_core.engine import StepWork


class StepCost(NamedTuple):
    """Parts of a step's time.

    Attributes:
        pack_s: Of the host, before the device can begin.
        launch_s: Of the host, while the device computes.
        device_s: Of the device.
    """

    pack_s: float
    launch_s: float
    device_s: float


class CostModel(msgspec.Struct, frozen=True, kw_only=True):
    """A device and a model on it: sizes that are known, and rates that are fitted.

    A step's products take the root of the sum of squares of two times, reading the weights and
    computing: few tokens are bound by the one, many by the other, and in between neither hides
    the other wholly. To these come attention (keys and values read for decoding rows, FLOPs for
    prompts), what each token and each row costs besides, and what every step costs.

    Attributes:
        weight_bytes: Read once a step.
        kv_bytes_per_token: Keys and values of one token in all layers.
        flops_per_token: Of all products of one token.
        flops_per_pair: Of attention between one token and one it attends to, in all layers.
        weight_bytes_per_s: Rate at which weights are read.
        kv_bytes_per_s: Rate at which decoding rows read keys and values.
        flops_per_s: Rate of products of many tokens.
        attention_flops_per_s: Rate of a prompt's attention.
        token_tile: Rows that products of more rows than that are rounded up to.
        step_s: Device time of a step besides.
        mixed_s: Device time of a step with both decoding rows and prompts besides.
        token_s: Device time of a token besides: norms, activations, KV writes.
        row_s: Device time of a row besides: logits and choice.
        pack_s: Host time of a step: planning, packing, upload, reading back.
        pack_row_s: Host time of a row in it.
        launch_s: Host time to launch a step that is not replayed from a recording, which are those
            with prompts beside decoding rows and those of more than `recorded_prompt_tokens`.
        recorded_prompt_tokens: Largest step of prompts alone that is replayed.
        recorded_prompts: Most prompts in it.
    """

    weight_bytes: float
    kv_bytes_per_token: float
    flops_per_token: float
    flops_per_pair: float
    weight_bytes_per_s: float
    kv_bytes_per_s: float
    flops_per_s: float
    attention_flops_per_s: float
    token_tile: int = 1
    step_s: float = 0.0
    mixed_s: float = 0.0
    token_s: float = 0.0
    row_s: float = 0.0
    pack_s: float = 0.0
    pack_row_s: float = 0.0
    launch_s: float = 0.0
    recorded_prompt_tokens: int = 0
    recorded_prompts: int = 0

    def cost(self, work: StepWork) -> StepCost:
        """Times of a step."""
        return StepCost(
            pack_s=self.pack_s + self.pack_row_s * work.num_rows,
            launch_s=0.0 if self._is_recorded(work) else self.launch_s,
            device_s=self.device_s(work),
        )

    def device_s(self, work: StepWork) -> float:
        """Time of a step on the device."""
        products_s = hypot(
            self.weight_bytes / self.weight_bytes_per_s,
            self._product_rows(work) * self.flops_per_token / self.flops_per_s,
        )
        kv_bytes = work.decode_context_tokens * self.kv_bytes_per_token
        attention_s = (
            kv_bytes / self.kv_bytes_per_s
            + work.prefill_pairs * self.flops_per_pair / self.attention_flops_per_s
        )
        besides_s = self.step_s + self.token_s * work.num_tokens + self.row_s * work.num_rows
        if work.num_decode and work.num_prompts:
            besides_s += self.mixed_s
        return products_s + attention_s + besides_s

    def _product_rows(self, work: StepWork) -> int:
        rows, tile = work.num_tokens, self.token_tile
        return rows if rows <= tile else -(-rows // tile) * tile

    def _is_recorded(self, work: StepWork) -> bool:
        if not work.num_prompts:
            return True
        return (
            work.num_decode == 0
            and work.num_prompts <= self.recorded_prompts
            and work.prefill_tokens <= self.recorded_prompt_tokens
        )
