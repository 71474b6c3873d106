"""What one step computes, as packed int32 host arrays: one buffer, one upload.

Knows token ids, positions and pages; nothing of requests, models or devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pegainfer_core.kernels.catalog import CHOICE_WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    IntArray = NDArray[np.int32]


class StepMetadata:
    """Rows of one step. Fill it with `add_row`, then `finish`; `clear` starts the next step.

    Sections lie at offsets that depend only on the limits given here, so that a recorded graph can
    hold their addresses; the page table is last, because only `packed[:num_packed]` is in use.

    Args:
        max_tokens: Most tokens in one step.
        max_rows: Most rows in one step.
        max_pages: Most page-table entries of all rows together (shared pages count once a row).
        page_tokens: Tokens in one KV page.
        max_saves: Most copies of recurrent states in one step.

    Attributes:
        packed: int32, all sections.
        num_tokens: Tokens in this step.
        num_rows: Rows in this step.
        num_decode: Leading rows that decode, one token each.
        num_samples: Rows that choose a token.
        num_prompt_logits: Tokens whose logits are wanted for prompt log-probabilities.
        num_saves: Copies of recurrent states, in the order of their tokens.
        num_adapted: Rows with an adapter.
        num_packed: Used length of `packed`, set by `finish`.
        token_ids: [max_tokens] ids.
        positions: [max_tokens] position of each token in its own sequence.
        slots: [max_tokens] where each token's KV goes: page id * page_tokens + offset.
        logit_tokens: [max_tokens + max_rows] indices into the step's tokens: first the
            `num_samples` sampling tokens in row order, then those for prompt log-probabilities.
        row_starts: [max_rows + 1] first token of each row, and the end.
        context_lens: [max_rows] tokens of each row's context, those of this step included.
        row_slots: [max_rows] each row's slot in per-request tables.
        page_starts: [max_rows + 1] first page-table entry of each row, and the end.
        save_ends: [max_saves] tokens of this step up to which a copied state goes: it is that of
            the row of the last of them, behind it.
        save_slots: [max_saves] where each copy goes; -1 in both behind the last one.
        choice_words: [max_rows, CHOICE_WORDS] what a sampler says about the choice of each sampling
            token, in their order; zero elsewhere.
        pages: [max_pages] page ids of all rows, row after row.
        row_adapters: [max_rows] slot of each row's adapter, -1 for none. Not in `packed`: backends
            derive from it what they need.
    """

    def __init__(
        self, max_tokens: int, max_rows: int, max_pages: int, page_tokens: int, max_saves: int = 0
    ) -> None:
        self.page_tokens = page_tokens
        sizes = {
            "token_ids": max_tokens,
            "positions": max_tokens,
            "slots": max_tokens,
            "logit_tokens": max_tokens + max_rows,
            "row_starts": max_rows + 1,
            "context_lens": max_rows,
            "row_slots": max_rows,
            "page_starts": max_rows + 1,
            "save_ends": max_saves,
            "save_slots": max_saves,
            "choice_words": max_rows * CHOICE_WORDS,
            "pages": max_pages,
        }
        self.packed: IntArray = np.zeros(sum(sizes.values()), np.int32)
        ends = np.cumsum(list(sizes.values()))[:-1]
        (
            self.token_ids,
            self.positions,
            self.slots,
            self.logit_tokens,
            self.row_starts,
            self.context_lens,
            self.row_slots,
            self.page_starts,
            self.save_ends,
            self.save_slots,
            choice_words,
            self.pages,
        ) = np.split(self.packed, ends)
        self.choice_words = choice_words.reshape(max_rows, CHOICE_WORDS)
        self._pages_offset = int(ends[-1])
        self.row_adapters: IntArray = np.full(max_rows, -1, np.int32)
        self.num_samples = self.num_saves = self.num_adapted = 0
        self.save_ends.fill(-1)
        self.save_slots.fill(-1)
        self._prompt_tokens: list[IntArray] = []
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        self.choice_words[: self.num_samples] = 0
        self.save_ends[: self.num_saves] = self.save_slots[: self.num_saves] = -1
        if self.num_adapted:
            self.row_adapters.fill(-1)
            self.num_adapted = 0
        self.num_tokens = self.num_rows = self.num_decode = 0
        self.num_samples = self.num_prompt_logits = self.num_saves = 0
        self.num_packed = self._pages_offset
        self._prompt_tokens.clear()

    @property
    def num_logits(self) -> int:
        """Used entries of `logit_tokens`."""
        return self.num_samples + self.num_prompt_logits

    def add_row(
        self,
        token_ids: Sequence[int],
        start: int,
        page_ids: Sequence[int],
        *,
        samples: bool,
        slot: int = -1,
        num_prompt_logits: int = 0,
        adapter: int = -1,
    ) -> None:
        """Append one row.

        Args:
            token_ids: The tokens to compute.
            start: Position of the first of them; the KV of all positions before it is in the pages.
            page_ids: Pages of the sequence from its first token on; entries past the row's context
                are left out.
            samples: Whether the last token's logits choose a token.
            slot: Row in per-request tables.
            num_prompt_logits: Leading tokens of the row whose logits are wanted as well.
            adapter: Slot of its adapter, -1 for none.

        Raises:
            ValueError: The pages do not reach the end of the row's context.
        """
        count, row, first = len(token_ids), self.num_rows, self.num_tokens
        end, context = first + count, start + count
        num_pages = -(-context // self.page_tokens)
        if len(page_ids) < num_pages:
            raise ValueError(f"{context} tokens need {num_pages} pages, but {len(page_ids)} given")
        pages = self.pages[self.num_packed - self._pages_offset :][:num_pages]
        pages[:] = page_ids[:num_pages]
        self.token_ids[first:end] = token_ids
        if count == 1:
            self.positions[first] = start
            self.slots[first] = pages[-1] * self.page_tokens + start % self.page_tokens
        else:
            positions = np.arange(start, context, dtype=np.int32)
            self.positions[first:end] = positions
            page, offset = np.divmod(positions, np.int32(self.page_tokens))
            self.slots[first:end] = pages[page] * np.int32(self.page_tokens) + offset
        if samples:
            self.logit_tokens[self.num_samples] = end - 1
            self.num_samples += 1
        if num_prompt_logits:
            self._prompt_tokens.append(np.arange(first, first + num_prompt_logits, dtype=np.int32))
            self.num_prompt_logits += num_prompt_logits
        self.row_starts[row : row + 2] = first, end
        self.context_lens[row] = context
        self.row_slots[row] = slot
        if adapter >= 0:
            self.row_adapters[row] = adapter
            self.num_adapted += 1
        self.num_packed += num_pages
        self.page_starts[row] = self.num_packed - self._pages_offset - num_pages
        self.page_starts[row + 1] = self.num_packed - self._pages_offset
        self.num_rows, self.num_tokens = row + 1, end

    def add_decode_rows(
        self,
        token_ids: Sequence[int],
        starts: Sequence[int],
        tables: Sequence[IntArray],
        slots: Sequence[int],
        adapters: Sequence[int] | None = None,
    ) -> None:
        """Append rows of one token each, all of which choose a token; like `add_row`, but at once.

        Args:
            token_ids: A token of each row.
            starts: Its position.
            tables: Pages of each sequence, at least those its context needs.
            slots: Rows in per-request tables.
            adapters: Slots of their adapters, -1 for none; None if no row has one.

        Raises:
            ValueError: Pages do not reach the end of a row's context.
        """
        count, row, first = len(token_ids), self.num_rows, self.num_tokens
        if not count:
            return
        rows, tokens = slice(row, row + count), slice(first, first + count)
        positions = self.positions[tokens]
        positions[:] = starts
        page, offset = np.divmod(positions, np.int32(self.page_tokens))
        needed = (page + 1).tolist()
        if any(map(_is_shorter, tables, needed)):
            raise ValueError("a decoding row has fewer pages than its context needs")
        begin = self.num_packed - self._pages_offset
        ends = np.cumsum(page + 1, dtype=np.int32) + np.int32(begin)
        pages = self.pages[begin : int(ends[-1])]
        np.concatenate([table[:n] for table, n in zip(tables, needed, strict=True)], out=pages)
        self.slots[tokens] = self.pages[ends - 1] * np.int32(self.page_tokens) + offset
        self.token_ids[tokens] = token_ids
        indices = np.arange(first, first + count, dtype=np.int32)
        self.logit_tokens[self.num_samples : self.num_samples + count] = indices
        self.row_starts[row] = first
        self.row_starts[row + 1 : row + count + 1] = indices + 1
        self.context_lens[rows] = positions + 1
        self.row_slots[rows] = slots
        if adapters is not None:
            self.row_adapters[rows] = adapters
            self.num_adapted += int(np.count_nonzero(self.row_adapters[rows] >= 0))
        self.page_starts[row] = begin
        self.page_starts[row + 1 : row + count + 1] = ends
        self.num_samples += count
        self.num_packed += len(pages)
        self.num_rows, self.num_tokens = row + count, first + count

    def add_save(self, row: int, num_tokens: int, slot: int) -> None:
        """Ask for a copy of a row's recurrent state; saves come in the order of their tokens.

        Args:
            row: Which row of those added.
            num_tokens: Tokens of the row in this step that the state is behind.
            slot: Where the copy goes.
        """
        self.save_ends[self.num_saves] = self.row_starts[row] + num_tokens
        self.save_slots[self.num_saves] = slot
        self.num_saves += 1

    def finish(self, num_decode: int) -> None:
        """Close the step; its first `num_decode` rows have one token each."""
        self.num_decode = num_decode
        if self._prompt_tokens:
            tail = self.logit_tokens[self.num_samples : self.num_logits]
            tail[:] = np.concatenate(self._prompt_tokens)


def _is_shorter(table: IntArray, num_pages: int) -> bool:
    return len(table) < num_pages
