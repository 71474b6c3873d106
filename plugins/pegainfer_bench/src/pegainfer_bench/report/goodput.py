"""Limits on latency that make a request a good one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pegainfer_core.plugin import CommandFault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pegainfer_bench.client import Outcome

_METRICS: Final = ("ttft", "tpot", "e2el")


def parse_goodput(words: Sequence[str]) -> dict[str, float]:
    """Read limits such as `ttft:500`, in milliseconds; a word may hold several, with commas.

    Raises:
        CommandFault: One is not of that form.
    """
    limits: dict[str, float] = {}
    for word in ",".join(words).split(",") if words else []:
        name, _, number = word.partition(":")
        try:
            limit_ms = float(number)
        except ValueError:
            limit_ms = math.nan
        if name not in _METRICS or not limit_ms > 0:
            raise CommandFault(
                f"--goodput {word}: expected {', '.join(_METRICS)} with milliseconds, "
                "such as ttft:500"
            )
        limits[name] = limit_ms
    return limits


def is_good(outcome: Outcome, limits_ms: Mapping[str, float]) -> bool:
    """Whether an answered request kept every limit; one token has no time a token to keep."""
    measured_s = {
        "ttft": outcome.ttft_s,
        "tpot": outcome.tpot_s or 0.0,
        "e2el": outcome.e2el_s,
    }
    return all(1e3 * measured_s[name] <= limit for name, limit in limits_ms.items())
