"""K04, host tier: what is told apart on the device is told apart in host memory.

The whole order again after other traffic pushed the pages out: each identity finds its own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pegainfer_core.kv import PrefixIdentity
from pegainfer_core.offload import root_digest
from pegainfer_core.testing.conformance.session import Session
from tests.cases.answers import assert_same
from tests.cases.conftest import StartEngine
from tests.cases.offloading import always_restored, tiers_with, wait_for_saves
from tests.cases.test_k04_cache_identity import TAKEN_APART, TURNED, B, ask, constant_hash

__all__ = ["always_restored", "constant_hash"]

SALTS = ["", "s1", "s2", "S1", "s1 ", "s1\0", "é"]

pytestmark = pytest.mark.usefixtures("always_restored")


def offloading(start: StartEngine, f3: Path) -> Session:
    return start(f3, num_kv_pages=14, kv_offload="host", kv_offload_host_gib=0.01)


def push_out(session: Session) -> None:
    """Traffic that takes every cached page of the device."""
    session.settle()
    for seed in range(2):
        ask(session, session.prompt(12 * B, seed=seed))
    session.settle()


def test_the_order_again_from_the_host(f3: Path, start: StartEngine) -> None:
    plain, session = start(f3, prefix_cache=False), offloading(start, f3)
    prompt = session.prompt(4 * B)
    texts = {"prompt": prompt, "taken apart": TAKEN_APART, "turned": TURNED}
    expected = {name: ask(plain, ids) for name, ids in texts.items()}
    for num_round in range(3):
        for salt in SALTS:
            for name, ids in texts.items():
                answer = ask(session, ids, salt)
                assert answer.cached_tokens == (3 * B if num_round else 0), (salt, name)
                assert_same(answer, expected[name])
                push_out(session)
    tiers_with(session, hit_tokens=2 * 3 * B * len(SALTS) * len(texts))


def test_constant_hash_misleads_nobody(constant_hash: None, f3: Path, start: StartEngine) -> None:
    plain, session = start(f3, prefix_cache=False), offloading(start, f3)
    prompt = session.prompt(4 * B)
    prompts = [prompt, [*session.prompt(B, seed=2), *prompt[B:]], prompt[:B] * 4, TURNED]
    expected = [ask(plain, ids) for ids in prompts]
    for _ in range(2):
        for salt in ("", "s1"):
            for ids, right in zip(prompts, expected, strict=True):
                assert_same(ask(session, ids, salt), right)
                push_out(session)
    assert ask(session, prompt).cached_tokens == B, "the one block that could be published"
    assert session.settle().kv_used_pages == 0


def test_another_model_finds_nothing(f3: Path, start: StartEngine) -> None:
    """Each part of what shapes a page is tagged: none can stand for another."""
    roots = {
        root_digest(pages, identity)
        for pages in ("", "s1", "m")
        for identity in (
            PrefixIdentity(),
            PrefixIdentity(model="s1"),
            PrefixIdentity(adapter="s1"),
            PrefixIdentity(cache_salt="s1"),
            PrefixIdentity(adapter="s", cache_salt="1"),
        )
    }
    assert len(roots) == 15


def test_saves_are_seen_in_metrics(f3: Path, start: StartEngine) -> None:
    session = offloading(start, f3)
    ask(session, session.prompt(4 * B))
    wait_for_saves(session, 4)
    (host,) = session.handle.metrics().kv_offload.tiers
    assert host.saved_bytes > 0 and host.save_s > 0 and host.loaded_bytes == 0
