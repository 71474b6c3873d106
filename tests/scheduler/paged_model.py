"""A deterministic stand-in for a model that sees its context only through KV pages.

Every position's cell depends on all tokens before it, and every choice reads all cells back through
the page list, so any page given to two owners, freed early or matched wrongly changes the tokens.
"""

from __future__ import annotations

from collections.abc import Iterable

from pegainfer_core.contract import GenerateRequest, TokenLogprobs
from pegainfer_core.engine import DoneStep, LaunchedStep, Row, RowResult, Sequence, StepPlan
from pegainfer_core.kv import PADDING_PAGE

VOCAB_SIZE = 50
EOS = 49
STOP = 48


def cell_after(previous: int, token_id: int, position: int) -> int:
    return hash((previous, token_id, position))


def cells_of(token_ids: Iterable[int]) -> list[int]:
    cells = [0]
    for position, token_id in enumerate(token_ids):
        cells.append(cell_after(cells[-1], token_id, position))
    return cells[1:]


def choose(cells: list[int], generated: list[int], request: GenerateRequest) -> RowResult:
    """Depends on context, seed, sample index and generated ids, as a real choice does."""
    params = request.params
    draw = hash((tuple(cells), params.seed or 0, request.sample_index, tuple(generated)))
    token_id = draw % VOCAB_SIZE
    ends = set(params.stop_token_ids)
    if not params.ignore_eos:
        ends.update(request.eos_token_ids)
    while len(generated) < params.min_tokens and token_id in ends:
        token_id = (token_id + 1) % VOCAB_SIZE
    if params.logprobs is None:
        return RowResult(token_id)
    return RowResult(token_id, score(cells, token_id))


def score(cells: list[int], token_id: int) -> TokenLogprobs:
    logprob = -(hash((tuple(cells), token_id)) % 10_000) / 1000
    return TokenLogprobs(logprob, 1, [token_id], [logprob])


class PagedModel:
    """Implements `ModelRunner` and checks what every plan must obey."""

    def __init__(
        self, page_tokens: int, max_prefill_tokens: int, num_pages: int, *, ahead: bool = False
    ) -> None:
        self.ahead = ahead
        self.newest: dict[int, int] = {}
        self.page_tokens = page_tokens
        self.max_prefill_tokens = max_prefill_tokens
        self.num_pages = num_pages
        self.pages: dict[int, list[int | None]] = {}
        self.num_steps = 0
        self.num_tokens = 0
        self.closed = False

    def launch(self, plan: StepPlan) -> LaunchedStep:
        self.num_steps += 1
        self.num_tokens += plan.num_tokens
        self._check(plan)
        results = [self._run(row) for row in plan.rows]
        for row, result in zip(plan.rows, results, strict=True):
            if result.token_id is not None:
                self.newest[row.sequence.slot] = result.token_id
        step = DoneStep(results)
        step.blocks = not self.ahead
        return step

    def forget(self, request_id: int) -> None:
        """Nothing is kept."""

    def raise_if_lost(self) -> None:
        """There is no device."""

    def close(self) -> None:
        self.closed = True

    def _check(self, plan: StepPlan) -> None:
        assert plan.rows, "a step without rows"
        decode, prefill = plan.rows[: plan.num_decode], plan.rows[plan.num_decode :]
        assert all(row.num_tokens == 1 and row.samples for row in decode)
        assert sum(row.num_tokens for row in prefill) <= self.max_prefill_tokens
        assert len({id(row.sequence) for row in plan.rows}) == len(plan.rows)
        assert len({row.sequence.slot for row in plan.rows}) == len(plan.rows)
        written: set[int] = set()
        for row in plan.rows:
            self._check_row(row)
            targets = set(row.sequence.page_ids[row.start // self.page_tokens :])
            assert not written & targets, "two rows write one page"
            written |= targets

    def _check_row(self, row: Row) -> None:
        sequence, end = row.sequence, row.start + row.num_tokens
        assert sequence.slot >= 0
        assert row.num_tokens >= 1
        assert row.start == sequence.num_computed
        num_known = len(sequence.token_ids) + sequence.num_unread
        assert sequence.num_unread <= (1 if self.ahead else 0)
        assert end <= num_known
        assert row.samples == (end == num_known and sequence.max_tokens > 0)
        assert num_known < sequence.num_prompt + max(sequence.max_tokens, 1), "past the end"
        assert len(sequence.page_ids) == -(-end // self.page_tokens), "not exactly the pages needed"
        assert PADDING_PAGE not in sequence.page_ids
        assert all(0 < page_id < self.num_pages for page_id in sequence.page_ids)
        assert len(set(sequence.page_ids)) == len(sequence.page_ids)

    def _run(self, row: Row) -> RowResult:
        sequence = row.sequence
        end = row.start + row.num_tokens
        previous = self._read(sequence, row.start - 1) if row.start else 0
        token_ids = list(sequence.token_ids)
        if sequence.num_unread:
            token_ids.append(self.newest[sequence.slot])
        for position in range(row.start, end):
            previous = cell_after(previous, token_ids[position], position)
            self._write(sequence, position, previous)
        cells = [self._read(sequence, position) for position in range(end)]
        scores = self._score_prompt(row, cells)
        if not row.samples:
            return RowResult(None, prompt_logprobs=scores)
        generated = token_ids[sequence.num_prompt :]
        return choose(cells, generated, sequence.request)._replace(prompt_logprobs=scores)

    def _score_prompt(self, row: Row, cells: list[int]) -> list[TokenLogprobs] | None:
        if row.sequence.prompt_logprobs is None:
            return None
        last = min(row.start + row.num_tokens + 1, row.sequence.num_prompt)
        positions = range(row.start + 1, last)
        return [score(cells[:p], row.sequence.token_ids[p]) for p in positions]

    def _write(self, sequence: Sequence, position: int, cell: int) -> None:
        page_id = sequence.page_ids[position // self.page_tokens]
        page = self.pages.setdefault(page_id, [None] * self.page_tokens)
        page[position % self.page_tokens] = cell

    def _read(self, sequence: Sequence, position: int) -> int:
        page_id = sequence.page_ids[position // self.page_tokens]
        cell = self.pages[page_id][position % self.page_tokens]
        assert cell is not None, "a position was read before it was written"
        return cell
