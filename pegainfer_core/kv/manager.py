"""A scheduler's hold on KV memory: pages for sequences, with prefixes shared between them.

Decides nothing about who runs: it says whether something fits, and keeps every page accounted for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pegainfer_core.kv.chain import NEVER, BlockChain
from pegainfer_core.kv.hashing import BlockHasher, PrefixIdentity
from pegainfer_core.kv.paged_sequence import PagedSequence
from pegainfer_core.kv.pool import PageError, PagePool
from pegainfer_core.kv.prefix_cache import PrefixCache
from pegainfer_core.kv.snapshot_groups import SnapshotGroups

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence as ReadOnlySequence

    from pegainfer_core.kv.event_log import KvEventLog
    from pegainfer_core.kv.snapshots import SnapshotSpec


_SequenceT = TypeVar("_SequenceT", bound=PagedSequence)


class KvManager:
    """Pages of one append-only group, such as the attention KV of all layers, with prefixes shared.

    A reservation is a promise of pages not yet taken: what others may take is `num_available`,
    the free and cached pages beyond all promises. A sequence within its reservation always grows.

    State that cannot be cut into pages is kept in snapshot groups: `admit` then takes over a
    prefix only as far as every group has a snapshot, whose slots `snapshots.sources` names.

    Attributes:
        page_tokens: Tokens in one page.
        pool: The pages; read its counts, leave the rest to the manager.
        snapshots: The snapshot groups; without any it does nothing.
    """

    def __init__(
        self,
        num_pages: int,
        page_tokens: int,
        *,
        prefix_cache: bool = True,
        model_identity: str = "",
        hasher: BlockHasher | None = None,
        snapshots: ReadOnlySequence[SnapshotSpec] = (),
        events: KvEventLog | None = None,
    ) -> None:
        """Start with every page free.

        Args:
            num_pages: Pages of the memory behind the ids, the padding page 0 included.
            page_tokens: Tokens in one page.
            prefix_cache: Whether pages may be found again by their content.
            model_identity: Content of the model; hashes of different models never agree.
            hasher: The hash scheme.
            snapshots: Groups of further state; without a prefix cache there is no use for them.
            events: Where to note what the prefix cache gains and loses.

        Raises:
            ValueError: A snapshot group's borders are not at page borders.
        """
        self.page_tokens = page_tokens
        self.snapshots = SnapshotGroups(snapshots if prefix_cache else (), page_tokens)
        self._cache = PrefixCache(num_pages, self.snapshots, events) if prefix_cache else None
        self.pool = PagePool(num_pages, self._cache)
        self._model_identity = model_identity
        self._hasher = hasher or BlockHasher()
        self._events = events
        self._num_promised = 0

    @property
    def num_available(self) -> int:
        """Pages that are neither used nor promised."""
        return self.pool.num_available - self._num_promised

    @property
    def num_dropped_event_batches(self) -> int:
        """Steps whose events were not delivered."""
        return self._events.num_dropped if self._events is not None else 0

    def pages_for(self, num_tokens: int) -> int:
        """Pages that hold so many tokens."""
        return -(-num_tokens // self.page_tokens)

    def new_chain(
        self, *, cache_salt: str = "", adapter: str = "", packed: bytes = b""
    ) -> BlockChain | None:
        """The chain of a new sequence, None without a prefix cache.

        Args:
            cache_salt: The client's own partition of the cache.
            adapter: Content of the sequence's adapter, such as a digest of its weights.
            packed: What `pack_tokens` gave for its prompt, if it was called.
        """
        if self._cache is None:
            return None
        identity = PrefixIdentity(
            model=self._model_identity, adapter=adapter, cache_salt=cache_salt
        )
        return BlockChain(identity, self._hasher, self.page_tokens, packed)

    def admit(
        self,
        sequence: PagedSequence,
        *,
        reserve_tokens: int,
        room_tokens: int,
        use_cache: bool = True,
    ) -> bool:
        """Share the longest cached prefix and reserve pages for the rest, or do nothing.

        Sets `page_ids`, `num_computed` and `num_completed` to the prefix. At least the last known
        token is left to compute, because its logits choose the next one.

        Args:
            sequence: Holds no pages.
            reserve_tokens: Tokens, counted from the first, that are sure to get pages.
            room_tokens: Tokens, counted likewise, for which there must be room now.
            use_cache: Whether cached pages may stand in for computing.

        Returns:
            Whether there was room.
        """
        page_ids = self._match(sequence, use_cache)
        num_in_use = len(page_ids) - self.pool.num_idle(page_ids)
        needed = self.pages_for(max(reserve_tokens, room_tokens)) - num_in_use
        if needed > self.num_available:
            return False
        self.pool.share(page_ids)
        sequence.page_ids += page_ids
        sequence.num_computed = sequence.num_completed = len(page_ids) * self.page_tokens
        sequence.num_reserved_pages = self.pages_for(reserve_tokens)
        self._num_promised += self._promised(sequence)
        if sequence.chain is not None and self._cache is not None:
            sequence.due_tokens = sequence.chain.due_tokens
            self.snapshots.begin(sequence.chain)
        return True

    def grow(self, sequence: PagedSequence, num_tokens: int) -> bool:
        """Give a sequence pages for its first `num_tokens` tokens; nothing if too few are left."""
        num_held = len(sequence.page_ids)
        missing = -(-num_tokens // self.page_tokens) - num_held
        if missing <= 0:
            return True
        num_promised = sequence.num_reserved_pages - num_held
        kept = min(missing, num_promised) if num_promised > 0 else 0
        if missing - kept > self.pool.num_available - self._num_promised:
            return False
        self._num_promised -= kept
        sequence.page_ids += self.pool.allocate(missing)
        return True

    def lacking_page(self, sequences: Iterable[_SequenceT]) -> list[_SequenceT]:
        """Those whose next token has no page yet: the only ones that a decode step must `grow`."""
        size = self.page_tokens
        return [
            seq
            for seq in sequences
            if not seq.num_computed % size and seq.num_computed == len(seq.page_ids) * size
        ]

    def commit(self, sequences: Iterable[_SequenceT]) -> list[_SequenceT]:
        """Publish the pages that completed tokens fill; call it with every step's sequences.

        Returns:
            Those that had any to publish.
        """
        cache = self._cache
        if cache is None:
            return []
        due = [sequence for sequence in sequences if sequence.num_completed >= sequence.due_tokens]
        groups, size = self.snapshots, self.page_tokens
        for sequence in due:
            chain = sequence.chain
            if chain is None:
                continue
            num_full = sequence.num_completed // size
            older = cache.publish(chain, sequence.token_ids, sequence.page_ids, num_full)
            sequence.due_tokens = chain.due_tokens
            if older:
                self.pool.discard(older)
            if groups:
                groups.settle(chain, num_full)
        if self._events is not None:
            self._events.flush()
        return due

    def share_known(self, sequence: PagedSequence, num_blocks: int) -> bool:
        """Share what the cache knows behind a sequence's prefix, up to so many blocks of it.

        Where a snapshot was missing, `admit` left it; `shrink` gives it back. Nothing of it counts
        as computed.

        Returns:
            Whether all of it was there.
        """
        chain = sequence.chain
        if chain is None or self._cache is None:
            return False
        first = len(chain.blocks)
        self._cache.match(chain, sequence.token_ids, num_blocks)
        page_ids = [block.page_id for block in chain.blocks[first:]]
        self._num_promised -= self._promised(sequence)
        self.pool.share(page_ids)
        sequence.page_ids += page_ids
        self._num_promised += self._promised(sequence)
        sequence.due_tokens = chain.due_tokens
        return len(chain.blocks) == num_blocks

    def shrink(self, sequence: PagedSequence, num_tokens: int) -> None:
        """Take pages behind a sequence's first `num_tokens` tokens back; those stay promised."""
        num_kept = -(-num_tokens // self.page_tokens)
        chain = sequence.chain
        if chain is not None and len(chain.blocks) > num_kept:
            del chain.blocks[num_kept:]
            chain.settle()
            sequence.due_tokens = chain.due_tokens
        surplus = sequence.page_ids[num_kept:]
        if surplus:
            self._num_promised -= self._promised(sequence)
            del sequence.page_ids[num_kept:]
            self.pool.release(reversed(surplus))
            self._num_promised += self._promised(sequence)

    def release(self, sequence: PagedSequence) -> None:
        """Take everything from a sequence that ended, was aborted or is preempted."""
        self._num_promised -= self._promised(sequence)
        sequence.num_reserved_pages = 0
        sequence.due_tokens = NEVER
        chain = sequence.chain
        if chain is not None and self._cache is not None:
            self.snapshots.leave(chain)
            self._cache.remember(chain)
        self.pool.release(reversed(sequence.page_ids))
        sequence.page_ids.clear()
        sequence.num_computed = sequence.num_completed = 0

    def reset_prefix_cache(self) -> None:
        """Drop cached pages that no sequence uses."""
        self.pool.discard_all()
        if self._events is not None:
            if self._cache is not None and not len(self._cache):
                self._events.cleared()
            self._events.flush()

    def close(self) -> None:
        """Let the events that were noted out; nothing is published after this."""
        if self._events is not None:
            self._events.close()

    def _match(self, sequence: PagedSequence, use_cache: bool) -> list[int]:
        if sequence.page_ids:
            raise PageError("a sequence that holds pages was admitted again")
        chain = sequence.chain
        if chain is None or self._cache is None:
            return []
        num_needless = len(sequence.token_ids) - 1 if use_cache else 0
        self._cache.match(chain, sequence.token_ids, num_needless // self.page_tokens)
        chain.num_known = len(chain.blocks)
        if self.snapshots:
            del chain.blocks[self.snapshots.usable(chain.blocks) :]
            chain.settle()
        return [block.page_id for block in chain.blocks]

    def _promised(self, sequence: PagedSequence) -> int:
        return max(sequence.num_reserved_pages - len(sequence.page_ids), 0)
