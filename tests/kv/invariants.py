"""What must be true of a `World` after every step."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pegainfer_core.kv import PADDING_PAGE

if TYPE_CHECKING:
    from tests.kv.world import Seq, World


def check_cells(world: World, seq: Seq) -> None:
    """What a sequence will read is what it would have computed."""
    size = world.kv.page_tokens
    for index, cell in enumerate(seq.content(seq.num_computed)):
        assert world.pages[seq.page_ids[index // size]][index % size] == cell, "foreign content"


def check(world: World) -> None:
    """Counts, owners, promises, the index and the snapshots are as they must be."""
    _check_owners(world)
    promised = sum(max(s.num_reserved_pages - len(s.page_ids), 0) for s in world.running)
    assert world.kv.num_available == world.kv.pool.num_available - promised >= 0
    _check_index(world)
    _check_snapshots(world)


def _check_owners(world: World) -> None:
    pool = world.kv.pool
    assert pool.num_free + pool.num_used + pool.num_cached == pool.num_total
    owners = Counter(page for seq in world.running for page in seq.page_ids)
    users = owners.copy()
    for copy in world.copies:
        users.update(copy.page_ids)
    assert PADDING_PAGE not in users and set(world.pages[PADDING_PAGE]) == {-1}
    for page in range(1, pool.num_total + 1):
        assert pool.num_users(page) == users[page], f"page {page}"
    assert pool.num_used == len(users)
    assert world.kv._cache is not None
    for page, count in owners.items():
        assert count == 1 or world.kv._cache._by_page[page] is not None, "shared unpublished"


def _check_index(world: World) -> None:
    cache, pool = world.kv._cache, world.kv.pool
    assert cache is not None
    num_copies = 0
    for key, block in cache._by_hash.items():
        assert block.block_hash == key and block.page_ids
        num_copies += len(block.page_ids)
        for page in block.page_ids:
            assert cache._by_page[page] is block
            assert pool.num_users(page) or pool.is_cached(page)
        assert len({tuple(world.pages[page]) for page in block.page_ids}) == 1, "copies differ"
    assert num_copies == sum(block is not None for block in cache._by_page)
    if not world.log._events:
        known = {key: block.token_bytes for key, block in cache._by_hash.items()}
        assert world.router.tokens == known, "a router is misled"


def _check_snapshots(world: World) -> None:
    for group, pool in enumerate(world.kv.snapshots.pools):
        assert pool.num_free + pool.num_taken + pool.num_held == pool.num_total
        for block, slot in pool._slots.items():
            cell = world.pages[block.page_ids[0]][-1]
            assert world.slots[group][slot] == hash(("state", cell)), "another block's state"
