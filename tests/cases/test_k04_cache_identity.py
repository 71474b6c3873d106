"""K04: cached blocks are shared between equal things only.

Seen elsewhere: two salts, or a prompt and another with the same text or the same hash, are served
from one another's blocks. The host tier and adapters have tests of their own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pegainfer_core.kv import BlockHasher, PrefixIdentity
from pegainfer_core.testing.conformance.session import Session
from pegainfer_core.testing.conformance.transcript import Transcript
from pegainfer_core.text import Tokenizer
from tests.cases.answers import assert_same, greedy
from tests.cases.conftest import StartEngine
from tests.cases.step_gate import StepGate

B = 16
PARAMS = greedy(12, logprobs=2)
#: One text of 4 B tokens in two ways: the token `ab##cd` once as itself and once as its bytes.
BYTES = list(b"ab##cd")
FILL = list(b"The quick brown fox jumps over the lazy dog, and then once more. ")
TAKEN_APART = [*FILL[:3], 260, *FILL[3:40], *BYTES, *FILL[40:]][: 4 * B]
TURNED = [*FILL[:3], *BYTES, *FILL[3:40], 260, *FILL[40:]][: 4 * B]


@pytest.fixture
def constant_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of all prompts have one hash."""
    monkeypatch.setattr(BlockHasher, "root", lambda self, identity: bytes(16))
    monkeypatch.setattr(
        BlockHasher, "extend", lambda self, identity, parent, blocks: [bytes(16) for _ in blocks]
    )
    monkeypatch.setattr(BlockHasher, "next", lambda self, identity, parent, block: bytes(16))


def ask(session: Session, prompt: list[int], salt: str = "") -> Transcript:
    return session.generate(prompt, PARAMS, cache_salt=salt)


def test_the_two_prompts_are_one_text(f3: Path) -> None:
    tokenizer = Tokenizer.from_dir(f3)
    assert tokenizer.decode(TAKEN_APART, False) == tokenizer.decode(TURNED, False)
    assert TAKEN_APART != TURNED
    assert len(TAKEN_APART) == len(TURNED) == 4 * B


def test_each_identity_has_blocks_of_its_own(f3: Path, start: StartEngine) -> None:
    plain, session = start(f3, prefix_cache=False), start(f3)
    prompt = session.prompt(4 * B)
    alone = ask(plain, prompt)
    order = ["", "s1", "s1", "s2", "", "s2", "S1", "s1 ", "s1\0", "é"]
    seen: set[str] = set()
    for salt in order:
        answer = ask(session, prompt, salt)
        assert answer.cached_tokens == (3 * B if salt in seen else 0), salt
        assert_same(answer, alone)
        seen.add(salt)
    for text in (TAKEN_APART, TURNED):
        expected = ask(plain, text)
        for cached in (0, 3 * B):
            answer = ask(session, text)
            assert answer.cached_tokens == cached
            assert_same(answer, expected)
    assert ask(plain, TAKEN_APART).token_ids != ask(plain, TURNED).token_ids


def test_answers_are_part_of_their_own_identity_only(f3: Path, start: StartEngine) -> None:
    """The next turn of a conversation finds the answer under its own salt alone."""
    plain, session = start(f3, prefix_cache=False), start(f3)
    prompt = session.prompt(2 * B - 6)
    turn = [*prompt, *ask(session, prompt, "s1").token_ids, 7, 8, 9]
    assert len(turn) > 2 * B
    expected = ask(plain, turn)
    for salt, cached in (("s2", 0), ("", 0), ("s1", 2 * B)):
        answer = ask(session, turn, salt)
        assert answer.cached_tokens == cached
        assert_same(answer, expected)


def test_the_order_again_after_eviction(f3: Path, start: StartEngine) -> None:
    """Blocks that other traffic pushed out are computed again, the rest is still told apart."""
    plain, session = start(f3, prefix_cache=False), start(f3, num_kv_pages=14)
    prompt = session.prompt(4 * B)
    expected = ask(plain, prompt)
    for _ in range(3):
        for salt in ("", "s1", "s2", "s1"):
            assert_same(ask(session, prompt, salt), expected)
        ask(session, session.prompt(9 * B, seed=1))
    assert session.settle().num_evicted_pages > 20


def test_side_by_side(f3: Path, start: StartEngine, gate: StepGate) -> None:
    """Live requests of several identities: those of one share pages, the others never."""
    plain, session = start(f3, prefix_cache=False), start(f3)
    prompt = session.prompt(4 * B)
    expected = ask(plain, prompt)
    salts = ["", "s1", "s2"]
    for salt in salts:
        ask(session, prompt, salt)
    with gate.together(session):
        live = [session.submit(prompt, PARAMS, cache_salt=salt) for _ in range(2) for salt in salts]
    for request_id in live:
        answer = session.answer(request_id)
        assert answer.cached_tokens == 3 * B
        assert_same(answer, expected)
    pages = [set(gate.rows_of(request_id)[-1].page_ids) for request_id in live]
    for first, mine in enumerate(pages):
        for second, theirs in enumerate(pages[:first]):
            same_identity = (first - second) % len(salts) == 0
            assert len(mine & theirs) == (3 if same_identity else 0)


def test_constant_hash(constant_hash: None, f3: Path, start: StartEngine) -> None:
    plain, session = start(f3, prefix_cache=False), start(f3)
    prompt = session.prompt(4 * B)
    prompts = {
        "base": prompt,
        "another first block": [*session.prompt(B, seed=2), *prompt[B:]],
        "another last block": [*prompt[: 3 * B], *session.prompt(B, seed=3)],
        "the same block twice": prompt[:B] * 4,
        "its blocks in another order": prompt[B:] + prompt[:B],
        "one text": TAKEN_APART,
        "the same text": TURNED,
    }
    expected = {name: ask(plain, ids) for name, ids in prompts.items()}
    for _ in range(2):
        for salt in ("", "s1"):
            for name, ids in prompts.items():
                answer = ask(session, ids, salt)
                assert_same(answer, expected[name])
                # One block can be found by the one hash, and only by who has it in front.
                mine = salt == "" and ids[:B] == prompt[:B]
                assert answer.cached_tokens == (B if mine and answer.cached_tokens else 0)
    assert ask(session, prompt).cached_tokens == B, "the hit that there can be"
    assert session.settle().kv_used_pages == 0


def test_constant_hash_side_by_side(
    constant_hash: None, f3: Path, start: StartEngine, gate: StepGate
) -> None:
    plain, session = start(f3, prefix_cache=False), start(f3, num_kv_pages=40)
    prompts = [session.prompt(4 * B, seed=seed % 4) for seed in range(8)]
    expected = [ask(plain, prompt) for prompt in prompts]
    for _ in range(3):
        with gate.together(session):
            live = [session.submit(prompt, PARAMS) for prompt in prompts]
        for request_id, right in zip(live, expected, strict=True):
            assert_same(session.answer(request_id), right)
    assert session.settle().kv_used_pages == 0


def test_an_adapter_and_a_salt_of_one_name_differ() -> None:
    """The kind is part of the key."""
    identities = [
        PrefixIdentity(),
        PrefixIdentity(model="s1"),
        PrefixIdentity(adapter="s1"),
        PrefixIdentity(cache_salt="s1"),
        PrefixIdentity(adapter="s", cache_salt="1"),
        PrefixIdentity(adapter="1", cache_salt="s"),
    ]
    assert len({BlockHasher().root(identity) for identity in identities}) == len(identities)
    assert len(set(identities)) == len(identities)
