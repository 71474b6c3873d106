"""Flags of `pegainfer bench latency` and `bench throughput`. Light."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

_FILE = {"metavar": "FILE"}


class LatencyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One batch, several times."""

    input_len: Annotated[int, Meta(ge=1, description="prompt tokens of a request")] = 32
    output_len: Annotated[int, Meta(ge=1, description="tokens to generate for a request")] = 128
    batch_size: Annotated[int, Meta(ge=1, description="requests at once")] = 8
    num_iters_warmup: Annotated[int, Meta(ge=0, description="batches before the first timed")] = 3
    num_iters: Annotated[int, Meta(ge=1, description="timed batches")] = 10
    output_json: Annotated[str | None, Meta(description="write the result", extra=_FILE)] = None


class ThroughputOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Many requests at once."""

    dataset_name: Annotated[
        Literal["random", "sharegpt", "custom"],
        Meta(description="random token ids, ShareGPT conversations, or JSON lines"),
    ] = "random"
    dataset_path: Annotated[
        str | None, Meta(description="file of a sharegpt or custom dataset", extra=_FILE)
    ] = None
    num_prompts: Annotated[int, Meta(ge=1, description="requests")] = 1000
    input_len: Annotated[int, Meta(ge=1, description="tokens of a random prompt")] = 1024
    output_len: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="tokens to generate (default: 128, or as the dataset says)"),
    ] = None
    random_range_ratio: Annotated[
        float, Meta(ge=0, lt=1, description="draw both lengths from (1 - r) to (1 + r) times those")
    ] = 0.0
    num_warmups: Annotated[
        int, Meta(ge=0, description="requests of the same kind before the timed ones")
    ] = 1
    output_json: Annotated[str | None, Meta(description="write the result", extra=_FILE)] = None
