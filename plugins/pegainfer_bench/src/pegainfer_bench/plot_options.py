"""Flags of `pegainfer bench plot`. Light."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class PlotOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which results, where to."""

    result: Annotated[
        list[str],
        Meta(
            description="result file of `bench serve`; may be repeated",
            extra={"positional": True, "metavar": "RESULT"},
        ),
    ]
    output: Annotated[str, Meta(description="PNG to write", extra={"metavar": "FILE"})] = (
        "bench.png"
    )
