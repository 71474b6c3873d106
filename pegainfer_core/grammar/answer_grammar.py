"""One answer's place in its grammar, and which tokens may come next.

Every mask that a request asks for is folded into this one, which is never empty: where they leave
nothing of what the grammar allows, the grammar wins.
"""

from __future__ import annotations

import threading
import time
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol

from pegainfer_core.grammar.token_bits import all_bits, bits_of, num_words

if TYPE_CHECKING:
    import numpy as np
    from llguidance import LLMatcher
    from numpy.typing import NDArray

    from pegainfer_core.contract import GenerateRequest
    from pegainfer_core.grammar.compiler import CompiledGrammar
    from pegainfer_core.grammar.mask_team import MaskTeam

    TokenBits = NDArray[np.int32]

__all__ = ["AnswerGrammar", "GrammarState"]

MAX_MASK_S: Final = 0.5
"""Longest time that steps wait for one mask; the request fails then."""
_MAX_QUEUED_S: Final = 10.0
_FIRST_MASKS_S: Final = 0.25
_MEAN_MASK_S: Final = 5e-3
"""Processor time that the masks of an answer may take, on top of `_FIRST_MASKS_S`."""
_SLOW: Final = "is too complex: its masks take too long; simplify it"


class GrammarState(Protocol):
    """What samplers and schedulers see of an answer's grammar.

    Attributes:
        error: Why the answer cannot go on, a clause; "" while it can.
        finished: Whether the answer is complete and no end token can say so.
    """

    error: str
    finished: bool

    def mask(self, num_generated: int) -> TokenBits:
        """Bits of the tokens that may be generated next; waits until they are known.

        Args:
            num_generated: Tokens of the answer so far, as a check.

        Returns:
            [ceil(vocab / 32)] int32, until the next `advance`.
        """
        ...

    def advance(self, token_id: int) -> None:
        """Take the token that was chosen; the next mask is worked out on another thread."""
        ...


class _Place(Enum):
    START = auto()
    """The answer begins with reasoning or with the grammar."""
    REASONING = auto()
    BODY = auto()


class AnswerGrammar:
    """Implements `GrammarState`; belongs to one request, through preemptions too.

    Args:
        grammar: The request's.
        request: With a wish for it.
        vocab_size: Rows of the embedding.
        team: Works out masks.
    """

    def __init__(
        self, grammar: CompiledGrammar, request: GenerateRequest, vocab_size: int, team: MaskTeam
    ) -> None:
        params = request.params
        if params.structured is None:
            raise ValueError(f"request {request.request_id} asks for no form")
        self.error = ""
        self.finished = False
        self._team = team
        self._behind = grammar.behind_reasoning
        self._start_id = params.structured.reasoning_start_id
        self._end_id = params.structured.reasoning_end_id
        ends = [*([] if params.ignore_eos else request.eos_token_ids), *params.stop_token_ids]
        self._ends = bits_of(ends, vocab_size)
        self._every = all_bits(vocab_size) & ~bits_of([grammar.end_id], vocab_size)
        limited = params.allowed_token_ids is not None or bool(params.bad_token_sequences)
        self._wanted = _wanted(request, vocab_size) if limited else None
        self._sequences = [s for s in params.bad_token_sequences if len(s) > 1]
        self._min_tokens = params.min_tokens
        self._vocab_size, self._num_words = vocab_size, num_words(vocab_size)
        self._mask = self._every
        self._num_generated = 0
        self._answer: list[int] = []
        self._next: int | None = None
        self._spent_s = self._started_s = 0.0
        self._ready = threading.Event()
        self._place = _Place.BODY
        if self._end_id is not None:
            self._place = _Place.REASONING if self._start_id is None else _Place.START
        reasons = self._place is _Place.REASONING
        self._begin(self._behind if reasons and self._behind is not None else grammar)
        self._take_mask()
        self._ready.set()

    def mask(self, num_generated: int) -> TokenBits:
        """See `GrammarState.mask`."""
        if num_generated != self._num_generated:
            raise RuntimeError(
                f"a grammar at token {self._num_generated} was asked about token {num_generated}"
            )
        if not self._ready.is_set():
            self._await()
        return self._mask

    def advance(self, token_id: int) -> None:
        """See `GrammarState.advance`."""
        if not self._ready.is_set():
            self._await()
        self._num_generated += 1
        if self._sequences:
            self._answer.append(token_id)
        if self.error:
            return
        if self._place is _Place.START and token_id != self._start_id:
            self._place = _Place.BODY
        elif self._place is not _Place.BODY:
            if self._place is _Place.START and self._behind is not None:
                self._begin(self._behind)
            self._place = _Place.BODY if token_id == self._end_id else _Place.REASONING
            # The grammar has not begun, and its first mask is known.
            self._take_mask()
            return
        self._next = token_id
        self._started_s = 0.0
        self._ready.clear()
        self._team.put(self)

    def compute(self) -> None:
        """Follow the token and work out the mask: the part for other threads."""
        self._started_s = time.monotonic()
        began_s = time.thread_time()
        try:
            self._follow()
        except Exception as error:
            self.error = f"cannot be followed any further: {str(error).splitlines()[0][:200]}"
        self._spent_s += time.thread_time() - began_s
        if self._spent_s > _FIRST_MASKS_S + _MEAN_MASK_S * self._num_generated:
            self.error = self.error or _SLOW
        self._ready.set()

    def _begin(self, grammar: CompiledGrammar) -> None:
        """Follow a grammar from its beginning."""
        self._matcher: LLMatcher = grammar.new_matcher()
        self._raw = grammar.mask.copy()
        # Asking an array for its address takes longer than most of what is done per mask.
        self._raw_at = (self._raw.ctypes.data, self._raw.nbytes)

    def _follow(self) -> None:
        token_id, self._next = self._next, None
        if token_id is not None and not self._matcher.consume_token(token_id):
            # Or none is allowed: the parser has met one of its bounds.
            why = self._matcher.get_error()
            raise ValueError(f"token {token_id} is not allowed: {why}")
        if not self._matcher.is_stopped():
            self._matcher.unsafe_compute_mask_ptr(*self._raw_at)
            self._take_mask()
            return
        if self._matcher.is_error():
            raise ValueError(self._matcher.get_error())
        if self._ends.any():
            self._mask = self._ends
        else:
            self._end_without_token()

    def _end_without_token(self) -> None:
        """Nothing may follow, an end token neither."""
        if not self._matcher.is_accepting():
            raise ValueError("no token leads on from here")
        self.finished = True
        self._mask = self._every

    def _take_mask(self) -> None:
        """Make the mask of this place from what the grammar says."""
        if self._place is _Place.REASONING:
            mask = self._every & ~self._ends
        else:
            mask = self._raw[: self._num_words] & self._every
            if self._matcher.is_accepting():
                mask |= self._ends
            if self._place is _Place.START and self._start_id is not None:
                mask |= bits_of([self._start_id], self._vocab_size)
            if not mask.any():
                self._end_without_token()
                return
        if self._num_generated < self._min_tokens:
            mask = _unless_empty(mask & ~self._ends, mask)
        if self._wanted is not None:
            mask = _unless_empty(self._without_bad(mask & self._wanted), mask)
        self._mask = mask

    def _without_bad(self, mask: TokenBits) -> TokenBits:
        """What bad sequences leave."""
        bad = []
        for *prefix, last in self._sequences:
            begun = len(self._answer) >= len(prefix)
            if begun and self._answer[len(self._answer) - len(prefix) :] == prefix:
                bad.append(last)
        return mask & ~bits_of(bad, self._vocab_size) if bad else mask

    def _await(self) -> None:
        """Wait for the mask as long as others can be kept waiting."""
        deadline_s = time.monotonic() + _MAX_QUEUED_S
        while not self._ready.wait(MAX_MASK_S):
            now_s = time.monotonic()
            begun = self._started_s > 0 and now_s - self._started_s > MAX_MASK_S
            if begun or now_s > deadline_s:
                # Whatever is chosen now is dropped, and the request with it.
                self.error = _SLOW
                self._mask = self._every
                self._team.grow()
                return
            if not self._started_s:
                self._team.grow()


def _wanted(request: GenerateRequest, vocab_size: int) -> TokenBits:
    """Ids that the request's own masks leave in every step."""
    params = request.params
    allowed = params.allowed_token_ids
    wanted = all_bits(vocab_size) if allowed is None else bits_of(allowed, vocab_size)
    return wanted & ~bits_of([s[0] for s in params.bad_token_sequences if len(s) == 1], vocab_size)


def _unless_empty(mask: TokenBits, other: TokenBits) -> TokenBits:
    return mask if mask.any() else other
