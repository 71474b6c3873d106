"""Flags of `pegainfer bench kernels`. Light."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class KernelsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which device, which decoder, which sizes."""

    model: Annotated[
        str | None,
        Meta(
            description="folder whose config.json gives the sizes (default: those of Qwen3-4B)",
            extra={"positional": True, "metavar": "MODEL"},
        ),
    ] = None
    backend: Annotated[Literal["numpy", "cuda"], Meta(description="whose ops to time")] = "cuda"
    device: Annotated[int, Meta(ge=0, description="ordinal of the GPU")] = 0
    rows: Annotated[
        str, Meta(description="rows of the products, norms and sampling, separated by commas")
    ] = "1,8,16,32,64,128,256"
    attention: Annotated[
        str, Meta(description="rows x context of decode attention, separated by commas")
    ] = "1x1024,1x32768,8x8192,64x1024,256x1024"
    prefill: Annotated[
        str, Meta(description="tokens of prefilled prompts, separated by commas; 0 for none")
    ] = "1024,4096"
    min_time: Annotated[float, Meta(gt=0, description="seconds to time each op for, at least")] = (
        0.05
    )
    rotate_mib: Annotated[
        int, Meta(ge=1, description="MiB that an op's operands cycle through, past the caches")
    ] = 256
    threads: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="compute threads of the NumPy backend (default: the library's)"),
    ] = None
    output_json: Annotated[
        str | None, Meta(description="write the result", extra={"metavar": "FILE"})
    ] = None
