"""What a client asks of an engine: ids in, ids out. Text never crosses this seam."""

from __future__ import annotations

import msgspec

from pegainfer_core.contract.sampling_params import SamplingParams


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One sequence to generate.

    Attributes:
        request_id: Unique among the requests of one handle; clients let `EngineClient` choose it.
        prompt_token_ids: At least one id, each below the vocabulary size.
        params: How tokens are chosen and when generation ends.
        eos_token_ids: The model's end ids, disabled by `params.ignore_eos`.
        sample_index: Which of several samples of one seeded prompt this is.
        priority: Lower runs first; ties run in arrival order.
        cache_salt: Prefix-cache blocks are shared only between equal salts.
        lora: Adapter name, when the engine's capabilities include LoRA.
        external_id: The caller's name for the request, for logs only; need not be unique.
        arrival_s: `time.monotonic()` at arrival, for queue-time accounting.
        kv_transfer_params: Opaque hand-off data for engines that can transfer KV.
    """

    request_id: int
    prompt_token_ids: list[int]
    params: SamplingParams = SamplingParams()
    eos_token_ids: list[int] = []
    sample_index: int = 0
    priority: int = 0
    cache_salt: str = ""
    lora: str | None = None
    external_id: str = ""
    arrival_s: float = 0.0
    kv_transfer_params: dict[str, str] | None = None
