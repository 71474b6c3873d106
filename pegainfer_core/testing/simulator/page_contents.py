"""What simulated KV pages hold, so that a page in wrong hands shows in the tokens or at once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from pegainfer_core.testing.simulator.simulation_error import SimulationError
from pegainfer_core.testing.simulator.token_rule import START, extend

if TYPE_CHECKING:
    from collections.abc import Sequence as Ordered


@dataclass(slots=True)
class PageContent:
    """Digests of one page; final once it is full."""

    before: int
    """Digest of all tokens before the page."""

    digest: int
    """The same with the page's own."""

    num_tokens: int = 0


class PageContents:
    """Digests of the tokens that were written to pages.

    A row reads its context only through its pages, as a model does. The walk over all of them,
    which finds a page overwritten by another request, is made for every chunk of a prompt and at
    every page border.

    Args:
        page_tokens: Tokens in one page.
    """

    def __init__(self, page_tokens: int) -> None:
        self._page_tokens = page_tokens
        self._pages: dict[int, PageContent] = {}

    def write(self, page_ids: Ordered[int], start: int, token_ids: Ordered[int]) -> int:
        """Write tokens behind the `start` tokens in the pages.

        Returns:
            The digest of all tokens up to the last one written.

        Raises:
            SimulationError: The pages do not hold one unbroken run of `start` tokens.
        """
        size = self._page_tokens
        index, offset = divmod(start, size)
        if offset == 0 or len(token_ids) > 1:
            self._walk(page_ids[: index + 1 if offset else index])
        digest = self._page(page_ids[index - 1]).digest if start >= size else START
        done = 0
        while done < len(token_ids):
            if offset == 0:
                self._pages[page_ids[index]] = PageContent(digest, digest)
            page = self._page(page_ids[index])
            if page.num_tokens != offset or page.before != digest:
                raise SimulationError(f"page {page_ids[index]} does not hold what was written")
            taken = token_ids[done : done + size - offset]
            page.digest = digest = extend(page.digest, taken)
            page.num_tokens += len(taken)
            done += len(taken)
            index, offset = index + 1, 0
        return digest

    def get(self, page_id: int) -> PageContent:
        """What a full page holds."""
        return self._page(page_id)

    def put(self, page_id: int, content: PageContent) -> None:
        """Let a page hold what another full page held."""
        self._pages[page_id] = content

    def _walk(self, page_ids: Ordered[int]) -> None:
        pages = [self._page(page_id) for page_id in page_ids]
        if pages and pages[0].before != START:
            raise SimulationError(f"page {page_ids[0]} is no first page")
        for index, (page, after) in enumerate(pairwise(pages)):
            if page.num_tokens != self._page_tokens or page.digest != after.before:
                raise SimulationError(
                    f"pages {page_ids[index]} and {page_ids[index + 1]} do not follow each other"
                )

    def _page(self, page_id: int) -> PageContent:
        page = self._pages.get(page_id)
        if page is None:
            raise SimulationError(f"page {page_id} was read before it was written")
        return page
