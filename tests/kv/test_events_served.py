"""`--kv-events` and `--kv-hash` on a whole engine: a router can compute and follow its hashes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cbor2
import msgspec
import xxhash

from pegainfer_core import LLM, SamplingParams
from pegainfer_core.kv import pack_tokens
from pegainfer_core.testing.tiny import script, table_model

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PAGE_TOKENS = 16


def vllm_hashes(token_ids: list[int]) -> list[str]:
    """What a router computes for a prompt's full blocks, by an encoder of its own."""

    def digest(item: Any) -> bytes:
        return xxhash.xxh3_128_digest(cbor2.dumps(item, canonical=True))

    parent = digest("7")
    hashes = []
    for start in range(0, len(token_ids) - PAGE_TOKENS + 1, PAGE_TOKENS):
        parent = digest((parent, token_ids[start : start + PAGE_TOKENS], None))
        hashes.append(parent.hex())
    return hashes


def test_a_router_can_follow_a_served_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEGAINFER_PLUGINS", "qwen3")
    folder = table_model(tmp_path / "model", script("H", "ABCDEFGH"), max_position_embeddings=256)
    path = tmp_path / "events.jsonl"
    llm = LLM(
        folder,
        backend="numpy",
        num_kv_pages=8,
        kv_hash="xxhash_cbor",
        kv_hash_seed="7",
        kv_events=f"jsonl:{path}",
    )
    outputs = []
    for prompt in ([65 + index % 8 for index in range(2 * PAGE_TOKENS)], [72] * 5 * PAGE_TOKENS):
        params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
        [output] = llm.generate([prompt], params, use_tqdm=False)
        outputs.append(prompt + output.token_ids)
    evicted = llm.metrics().num_evicted_pages
    llm.close()

    lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    assert [line["seq"] for line in lines] == list(range(len(lines)))
    events = [event for line in lines for event in line["events"]]
    assert events[0] == {"type": "AllBlocksCleared"}
    stored: dict[str, bytes] = {}
    parents: dict[str, str | None] = {}
    for event in events:
        if event["type"] == "BlockStored":
            assert (event["block_size"], event["medium"]) == (PAGE_TOKENS, "GPU")
            parent = event["parent_block_hash"]
            packed = pack_tokens(event["token_ids"])
            for index, block_hash in enumerate(event["block_hashes"]):
                stored[block_hash] = packed[index * 64 : index * 64 + 64]
                parents[block_hash] = parent
                parent = block_hash
    # What is never an input of the model, the last token, is in no page.
    for token_ids in outputs:
        expected = vllm_hashes(token_ids[:-1])
        assert [parents[block_hash] for block_hash in expected] == [None, *expected[:-1]]
        assert b"".join(stored[block_hash] for block_hash in expected) == pack_tokens(
            token_ids[: len(expected) * PAGE_TOKENS]
        )
    removed = [event["block_hashes"] for event in events if event["type"] == "BlockRemoved"]
    assert sum(map(len, removed)) == evicted > 0
