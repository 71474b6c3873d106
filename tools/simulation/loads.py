"""Loads by name: those of `tools/gpu/serving_table.py`, prompts and times included, and more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.testing import ClosedTrace, ConversationTrace, OpenTrace

if TYPE_CHECKING:
    from pegainfer_core.testing import Trace

CLOSED = ("c8", "c16", "c32", "c64", "c128", "c256")
POISSON = ("poisson16", "poisson32", "poisson64", "poisson96")
TALKS = ("chat16", "chat32", "agents1", "agents2")
ALL = CLOSED + POISSON + TALKS
#: Seeds that `serving_table.py` gives its rows.
_SEEDS = dict(zip(CLOSED, range(102, 108), strict=True)) | {
    "poisson16": 116,
    "poisson32": 117,
    "poisson64": 119,
    "poisson96": 120,
}


def load(name: str, seed: int | None = None) -> Trace:
    """Make a load.

    `cN`: N clients, 1,024 in and 256 out. `poissonN`: N requests a second, 1,024 in and 128 out.
    `chatN`, `agentsN`: N conversations begun a second.

    Args:
        name: One of `ALL`, or its kind with another number.
        seed: None is the measured row's, where there is one.

    Raises:
        ValueError: There is no such kind.
    """
    kind = name.rstrip("0123456789")
    if kind not in ("c", "poisson", "chat", "agents") or kind == name:
        raise ValueError(f"there is no load {name!r}; there are {', '.join(ALL)}")
    count = int(name[len(kind) :])
    if count < 1:
        raise ValueError(f"load {name!r} has nobody in it: its number must be at least 1")
    seed = _SEEDS.get(name, 1) if seed is None else seed
    if kind == "c":
        num = {128: 256, 256: 512}.get(count, 3 * count)
        return ClosedTrace(
            num_requests=num, concurrency=count, input_tokens=1024, output_tokens=256, seed=seed
        )
    if kind == "poisson":
        num = max(6 * count, 96)
        return OpenTrace.poisson(
            num_requests=num,
            per_s=count,
            input_tokens=1024,
            output_tokens=128,
            seed=seed,
            num_warmups=8,
        )
    if kind == "chat":
        return ConversationTrace.chat(num_conversations=6 * count, per_s=count, seed=seed)
    return ConversationTrace.agents(num_agents=12 * count, per_s=count, seed=seed)
