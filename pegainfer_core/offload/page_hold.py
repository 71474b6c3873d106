"""Counts the copies that read or write one sequence's pages. Used by the engine's thread alone."""

from __future__ import annotations


class PageHold:
    """What must stay where it is while copies are under way.

    All pages of the sequence, because the prefix cache relies on their order: a page is given back
    before those it builds on.

    Attributes:
        num_copies: Saves of single pages and restores under way.
        page_ids: The pages, once the sequence itself has let go of them.
    """

    __slots__ = ("num_copies", "page_ids")

    def __init__(self) -> None:
        self.num_copies = 0
        self.page_ids: list[int] = []
