"""Host memory behind the device's pages, on simulated time: restoring instead of computing."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pegainfer_core.contract import KvOffloadMetrics
from pegainfer_core.engine import NoOffload

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pegainfer_core.engine import Sequence
    from pegainfer_core.kv import BlockChain, KvManager
    from pegainfer_core.testing.simulator.page_contents import PageContent
    from pegainfer_core.testing.simulator.simulated_runner import SimulatedRunner


class HostTierCost(msgspec.Struct, frozen=True, kw_only=True):
    """What host memory holds and how fast it gives.

    Attributes:
        num_pages: Pages it holds; the one unused for longest goes first.
        page_s: Time to copy a page to the device; copies go one after the other.
        prefill_tokens_per_s: What computing is reckoned at when restoring is weighed against it.
    """

    num_pages: int
    page_s: float
    prefill_tokens_per_s: float


class _Landing(NamedTuple):
    at_s: float
    hashes: list[bytes]


class SimulatedHostTier(NoOffload):
    """Implements `KvOffload` with copies that take time only.

    Every page that is published is in host memory at once, since saving happens beside the steps.
    A restore brings the pages behind the prefix on the device, if that is quicker than computing
    them.

    Args:
        kv: The engine's pages.
        runner: Knows what they hold, and the time.
        cost: Of the tier.
    """

    def __init__(self, kv: KvManager, runner: SimulatedRunner, cost: HostTierCost) -> None:
        super().__init__(kv)
        self._runner = runner
        self._cost = cost
        self._held: OrderedDict[bytes, PageContent] = OrderedDict()
        self._landings: dict[Sequence, _Landing] = {}
        self._free_s = 0.0
        self._num_restores = 0
        self._restored_tokens = 0
        self._num_skipped = 0

    def begin(self, started: list[Sequence]) -> list[Sequence]:
        """Look for pages behind the prefixes, and begin to bring them back."""
        for sequence in started:
            chain = sequence.chain
            if chain is None:
                continue
            sequence.num_saved_pages = len(chain.blocks)
            if sequence.prompt_logprobs is None:
                self._look(sequence, chain)
        return [sequence for sequence in started if not sequence.restoring]

    def commit(self, sequences: Iterable[Sequence]) -> None:
        """Let sequences go on whose pages have come, publish, and keep what is new."""
        now_s = self._runner.clock.now_s
        for sequence in [seq for seq, landing in self._landings.items() if landing.at_s <= now_s]:
            self._land(sequence, self._landings.pop(sequence).hashes)
        self._publish(sequences)

    def release(self, sequence: Sequence) -> None:
        """Keep a sequence's last pages, then take them from it; a copy under way is forgotten."""
        self._landings.pop(sequence, None)
        sequence.restoring = False
        self._publish((sequence,))
        self._kv.release(sequence)

    def rest(self) -> None:
        """Wait for the next copy to end."""
        if self._landings:
            self._runner.clock.advance_to(min(land.at_s for land in self._landings.values()))

    def metrics(self) -> KvOffloadMetrics:
        """Counters since start."""
        return KvOffloadMetrics(
            num_restores=self._num_restores,
            restored_tokens=self._restored_tokens,
            num_skipped_restores=self._num_skipped,
            num_restoring=len(self._landings),
        )

    def _look(self, sequence: Sequence, chain: BlockChain) -> None:
        size = self._kv.page_tokens
        first, limit = len(chain.blocks), (len(sequence.token_ids) - 1) // size
        chain.extend(sequence.token_ids, limit)
        hashes = []
        for block_hash in chain.hashes[first:limit]:
            if block_hash not in self._held:
                break
            hashes.append(block_hash)
        copy_s = len(hashes) * self._cost.page_s
        if not hashes:
            return
        if copy_s >= len(hashes) * size / self._cost.prefill_tokens_per_s:
            self._num_skipped += 1
            return
        self._free_s = max(self._free_s, self._runner.clock.now_s) + copy_s
        self._kv.grow(sequence, (first + len(hashes)) * size)
        self._landings[sequence] = _Landing(self._free_s, hashes)
        sequence.restoring = True

    def _land(self, sequence: Sequence, hashes: list[bytes]) -> None:
        first = sequence.num_computed // self._kv.page_tokens
        page_ids = sequence.page_ids[first : first + len(hashes)]
        landed = 0
        for page_id, block_hash in zip(page_ids, hashes, strict=True):
            content = self._held.get(block_hash)
            if content is None:
                break  # given up while the copy was queued
            self._held.move_to_end(block_hash)
            self._runner.contents.put(page_id, content)
            landed += 1
        sequence.restoring = False
        end_tokens = (first + landed) * self._kv.page_tokens
        self._kv.shrink(sequence, end_tokens)
        sequence.num_computed = sequence.num_completed = end_tokens
        sequence.num_restored = landed * self._kv.page_tokens
        self._num_restores += landed > 0
        self._restored_tokens += sequence.num_restored

    def _publish(self, sequences: Iterable[Sequence]) -> None:
        for sequence in self._kv.commit(sequences):
            blocks = sequence.chain.blocks if sequence.chain is not None else []
            for index in range(sequence.num_saved_pages, len(blocks)):
                block_hash = blocks[index].block_hash
                self._held[block_hash] = self._runner.contents.get(sequence.page_ids[index])
                self._held.move_to_end(block_hash)
            sequence.num_saved_pages = len(blocks)
        while len(self._held) > self._cost.num_pages:
            self._held.popitem(last=False)
