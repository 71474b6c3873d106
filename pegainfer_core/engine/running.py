"""The requests that hold KV and a slot, most important first, and room for them by preemption."""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

from pegainfer_core.engine.step import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pegainfer_core.engine.sequence import Sequence
    from pegainfer_core.kv import KvManager


class RunningSet:
    """Running sequences in order of rank: priority first, then arrival.

    The order never changes while a sequence lives, through preemptions too. So the first one always
    moves on, and then the next: however small the pool, everyone ends.
    """

    def __init__(self) -> None:
        self._ordered: list[Sequence] = []
        self._by_id: dict[int, Sequence] = {}

    def __len__(self) -> int:
        """Running sequences."""
        return len(self._ordered)

    def __iter__(self) -> Iterator[Sequence]:
        """Most important first."""
        return iter(self._ordered)

    def get(self, request_id: int) -> Sequence | None:
        """The running sequence of a request."""
        return self._by_id.get(request_id)

    def add(self, sequence: Sequence) -> None:
        """Put an admitted sequence in its place."""
        insort(self._ordered, sequence, key=_rank)
        self._by_id[sequence.request_id] = sequence

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out."""
        self._ordered.remove(sequence)
        del self._by_id[sequence.request_id]

    def victim(self) -> Sequence:
        """The one to preempt: the youngest of the lowest priority."""
        return self._ordered[-1]


def make_room(
    sequence: Sequence,
    num_tokens: int,
    kv: KvManager,
    running: RunningSet,
    preempt: Callable[[Sequence], None],
    reclaim: Callable[[], bool] = lambda: False,
) -> bool:
    """Give a running sequence pages for its first `num_tokens` tokens, preempting as needed.

    Args:
        sequence: A member of `running`.
        num_tokens: Tokens that must have pages.
        kv: The pages.
        running: Those that may be preempted, the sequence itself last resort.
        preempt: Releases a sequence's pages, takes it out of `running` and queues it again.
        reclaim: Waits for pages that are on their way back; False when there are none.

    Returns:
        False when the sequence itself had to go.

    Raises:
        RuntimeError: The sequence is alone and still does not fit; admission let it in wrongly.
    """
    while not kv.grow(sequence, num_tokens):
        if reclaim():
            continue
        victim = running.victim()
        if victim is sequence and len(running) == 1:
            raise RuntimeError(
                f"request {sequence.request_id} needs {kv.pages_for(num_tokens)} KV pages alone, "
                f"more than the pool's {kv.pool.num_total}"
            )
        preempt(victim)
        if victim is sequence:
            return False
    return True


def decode_rows(
    running: RunningSet,
    kv: KvManager,
    preempt: Callable[[Sequence], None],
    reclaim: Callable[[], bool] = lambda: False,
) -> list[Row]:
    """Rows of all sequences that decode, with pages for their tokens, preempting as needed.

    Args:
        running: Those that may decode, or be preempted.
        kv: The pages.
        preempt: As in `make_room`.
        reclaim: As in `make_room`.
    """
    decoding = [sequence for sequence in running if sequence.decodes]
    for sequence in kv.lacking_page(decoding):
        if sequence.slot >= 0:  # else it went a moment ago, for one before it
            make_room(sequence, sequence.num_computed + 1, kv, running, preempt, reclaim)
    return [Row(seq, seq.num_computed, 1, True) for seq in decoding if seq.slot >= 0]


def _rank(sequence: Sequence) -> tuple[int, int]:
    return sequence.rank
