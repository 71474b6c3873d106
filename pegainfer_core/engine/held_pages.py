"""Pages that copies use, each with a user of its own beside the sequences'. Knows no copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pegainfer_core.kv import PagePool


class HeldPages:
    """Keeps pages from being given to others while they are read or written.

    Args:
        pool: Of the pages.
    """

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self._num_holds: dict[int, int] = {}

    def __len__(self) -> int:
        """Pages held."""
        return len(self._num_holds)

    @property
    def any_alone(self) -> bool:
        """Whether there are pages that nobody but copies uses."""
        num_users = self._pool.num_users
        return any(num_users(page_id) == count for page_id, count in self._num_holds.items())

    def hold(self, page_ids: list[int]) -> None:
        """Add a user to pages that are in use."""
        self._pool.share(page_ids)
        holds = self._num_holds
        for page_id in page_ids:
            holds[page_id] = holds.get(page_id, 0) + 1

    def let_go(self, page_ids: Iterable[int]) -> None:
        """Take such a user off each page, in the order given."""
        holds, released = self._num_holds, list(page_ids)
        for page_id in released:
            if holds[page_id] == 1:
                del holds[page_id]
            else:
                holds[page_id] -= 1
        self._pool.release(released)

    def clear(self) -> None:
        """Let go of all."""
        self.let_go([page for page, count in self._num_holds.items() for _ in range(count)])
