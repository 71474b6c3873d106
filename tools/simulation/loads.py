"""Loads by name: those of `tools/gpu/serving_table.py`, prompts and times included, and more."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from pegainfer_core.testing import ClosedTrace, ConversationTrace, OpenTrace

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.testing import Trace

CLOSED = ("c8", "c16", "c32", "c64", "c128", "c256")
POISSON = ("poisson16", "poisson32", "poisson64", "poisson96")
TALKS = ("chat16", "chat32", "agents1", "agents2")
SPECIAL = ("mixed32", "long8", "chats256", "pressure2")
ALL = CLOSED + POISSON + TALKS + SPECIAL
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
    `chatN`, `agentsN`: N conversations begun a second. `mixedN`: N streams of 2,048 tokens, prompts
    of 8k and 32k injected in turn. `longN`: N prompts of 1,024 a second, one of 32k every 2 s.
    `chatsN`: N chats at once that set no limit. `pressureN`: N requests a second, 500 of them,
    2,048 in give or take a half, 128 out.

    Args:
        name: One of `ALL`, or its kind with another number.
        seed: None is the measured row's, where there is one.

    Raises:
        ValueError: There is no such kind.
    """
    kind = name.rstrip("0123456789")
    if kind not in _KINDS or kind == name:
        raise ValueError(f"there is no load {name!r}; there are {', '.join(ALL)}")
    count = int(name[len(kind) :])
    if count < 1:
        raise ValueError(f"load {name!r} has nobody in it: its number must be at least 1")
    seed = _SEEDS.get(name, 1) if seed is None else seed
    return _KINDS[kind](count, seed)


def _closed(count: int, seed: int) -> Trace:
    num = {128: 256, 256: 512}.get(count, 3 * count)
    return ClosedTrace(
        num_requests=num, concurrency=count, input_tokens=1024, output_tokens=256, seed=seed
    )


def _poisson(count: int, seed: int) -> Trace:
    return OpenTrace.poisson(
        num_requests=max(6 * count, 96),
        per_s=count,
        input_tokens=1024,
        output_tokens=128,
        seed=seed,
        num_warmups=8,
    )


def _chat(count: int, seed: int) -> Trace:
    return ConversationTrace.chat(num_conversations=6 * count, per_s=count, seed=seed)


def _agents(count: int, seed: int) -> Trace:
    return ConversationTrace.agents(num_agents=12 * count, per_s=count, seed=seed)


def _mixed(count: int, seed: int) -> Trace:
    streams = OpenTrace.poisson(
        num_requests=count, per_s=inf, input_tokens=256, output_tokens=2048, seed=seed
    )
    return OpenTrace.injected(
        streams, input_tokens=[8192, 32_768] * 3, output_tokens=32, every_s=1.3, seed=seed + 1
    )


def _long(count: int, seed: int) -> Trace:
    short = OpenTrace.poisson(
        num_requests=20 * count, per_s=count, input_tokens=1024, output_tokens=128, seed=seed
    )
    return OpenTrace.injected(
        short, input_tokens=[32_768] * 9, output_tokens=32, every_s=2.0, seed=seed + 1
    )


def _chats(count: int, seed: int) -> Trace:
    return OpenTrace.poisson(
        num_requests=count,
        per_s=inf,
        input_tokens=300,
        output_tokens=500,
        seed=seed,
        spread=0.5,
        has_limit=False,
    )


def _pressure(count: int, seed: int) -> Trace:
    return OpenTrace.poisson(
        num_requests=500,
        per_s=count,
        input_tokens=2048,
        output_tokens=128,
        seed=seed,
        spread=0.5,
    )


_KINDS: dict[str, Callable[[int, int], Trace]] = {
    "c": _closed,
    "poisson": _poisson,
    "chat": _chat,
    "agents": _agents,
    "mixed": _mixed,
    "long": _long,
    "chats": _chats,
    "pressure": _pressure,
}
