"""Flags of `pegainfer bench startup`. Light."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class StartupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How often to start, and from where the weights are read."""

    num_starts: Annotated[int, Meta(ge=1, description="times to start")] = 3
    page_cache: Annotated[
        Literal["warm", "cold"],
        Meta(description="have the checkpoint's files in the page cache, or out of it"),
    ] = "warm"
    input_len: Annotated[int, Meta(ge=1, description="prompt tokens of the first request")] = 16
    start_timeout: Annotated[float, Meta(gt=0, description="seconds until a start has failed")] = (
        600.0
    )
    output_json: Annotated[
        str | None, Meta(description="write the result", extra={"metavar": "FILE"})
    ] = None
