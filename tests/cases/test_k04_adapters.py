"""K04, adapters: blocks of the base model, of adapters, of their versions and of salts differ.

Seen elsewhere: base and adapter, or an adapter and what its name held before, are served from one
another's blocks; so are an adapter and a salt of one spelling. On the device and in host memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pegainfer_core.contract import CoreOptions
from pegainfer_core.plugin import PluginHost, prepare_launch
from pegainfer_core.testing.conformance.session import Session
from tests.cases.adapting import AdapterFolders, adapters, load_adapter, unload_adapter
from tests.cases.answers import assert_same, greedy
from tests.cases.conftest import TIMEOUT_S, StartEngine
from tests.cases.offloading import always_restored
from tests.cases.test_k04_cache_identity import B, constant_hash
from tests.cases.test_k04_host_tier import push_out

if TYPE_CHECKING:
    from pegainfer_core.testing.conformance.transcript import Transcript

__all__ = ["adapters", "always_restored", "constant_hash"]

PARAMS = greedy(8, logprobs=2)
#: Adapter and salt of each request, in this order.
ORDER = (
    (None, ""),
    ("x", ""),
    ("y", ""),
    (None, "s1"),
    ("s1", ""),
    (None, "s2"),
    ("x", "s1"),
    ("s1", "x"),
)


def ask(session: Session, lora: str | None, salt: str = "", seed: int = 0) -> Transcript:
    prompt = session.prompt(4 * B, seed)
    return session.answer(session.submit(prompt, PARAMS, lora=lora, cache_salt=salt))


def options_with(folders: AdapterFolders) -> dict[str, object]:
    """x, y, and an adapter named like a salt, whose weights are those that x will have later."""
    named = [f"x={folders.x}", f"y={folders.y}", f"s1={folders.other_x}"]
    return {"lora": named, "max_loras": 4, "max_lora_rank": 17}


def start_with(start: StartEngine, f3: Path, folders: AdapterFolders, **options: object) -> Session:
    return start(f3, **options_with(folders), **options)


@pytest.fixture(scope="module")
def alone(
    f3: Path, qwen3_host: PluginHost, adapters: AdapterFolders
) -> dict[str | None, Transcript]:
    """Each identity's answer on an engine that caches nothing; all differ."""
    core = CoreOptions(backend="numpy", prefix_cache=False, **options_with(adapters))  # type: ignore[arg-type]
    launch = prepare_launch(qwen3_host, f3, options=core)
    plain = Session(launch.family.launch(launch.context, launch.plan), TIMEOUT_S)
    found = {name: ask(plain, name) for name in (None, "x", "y", "s1")}
    plain.handle.close()
    assert len({tuple(answer.token_ids) for answer in found.values()}) == len(found)
    return found


def test_each_identity_has_blocks_of_its_own(
    f3: Path,
    start: StartEngine,
    adapters: AdapterFolders,
    alone: dict[str | None, Transcript],
) -> None:
    session = start_with(start, f3, adapters)
    for cached in (0, 3 * B):
        for lora, salt in ORDER:
            answer = ask(session, lora, salt)
            assert answer.cached_tokens == cached, (lora, salt)
            assert_same(answer, alone[lora])
    assert session.settle().kv_used_pages == 0


def test_new_weights_under_an_old_name(
    f3: Path,
    start: StartEngine,
    adapters: AdapterFolders,
    alone: dict[str | None, Transcript],
) -> None:
    session = start_with(start, f3, adapters)
    unload_adapter(session, "s1")
    assert_same(ask(session, "x"), alone["x"])
    load_adapter(session, "x", adapters.other_x, replace=True)
    for cached in (0, 3 * B):
        answer = ask(session, "x")
        assert answer.cached_tokens == cached
        assert_same(answer, alone["s1"])
    # The first weights again: their blocks are still theirs, under whatever name.
    load_adapter(session, "x", adapters.x, replace=True)
    load_adapter(session, "twin", adapters.x)
    for name in ("x", "twin"):
        answer = ask(session, name)
        assert answer.cached_tokens == 3 * B
        assert_same(answer, alone["x"])


def test_the_order_again_from_the_host(
    always_restored: None,
    f3: Path,
    start: StartEngine,
    adapters: AdapterFolders,
    alone: dict[str | None, Transcript],
) -> None:
    session = start_with(
        start, f3, adapters, num_kv_pages=14, kv_offload="host", kv_offload_host_gib=0.01
    )
    for cached in (0, 3 * B):
        for lora, salt in ((None, ""), ("x", ""), ("s1", ""), (None, "s1")):
            answer = ask(session, lora, salt)
            assert answer.cached_tokens == cached, (lora, salt)
            assert_same(answer, alone[lora])
            push_out(session)


def test_constant_hash(
    constant_hash: None,
    f3: Path,
    start: StartEngine,
    adapters: AdapterFolders,
    alone: dict[str | None, Transcript],
) -> None:
    session = start_with(start, f3, adapters)
    for _ in range(2):
        for lora, salt in ORDER:
            assert_same(ask(session, lora, salt), alone[lora])
