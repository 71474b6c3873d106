"""Reads grammars, and keeps those read lately, on whatever threads call it."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import numpy as np

from pegainfer_core.grammar.grammar_text import GrammarProblem, grammar_text
from pegainfer_core.grammar.token_bits import bits_of, num_words
from pegainfer_core.grammar.tokenizer_text import with_end_token

if TYPE_CHECKING:
    from collections.abc import Callable

    from llguidance import LLMatcher, LLParserLimits, LLTokenizer

    from pegainfer_core.contract import StructuredOutput

__all__ = ["CompiledGrammar", "GrammarCompiler", "GrammarProblem"]

MAX_FIRST_MASK_S: Final = 0.25
"""Processor time of the first mask; a grammar that needs more for it is refused."""

_NUM_KEPT: Final = 32
_INSTALL: Final = "needs the package llguidance: pip install 'pegainfer[grammar]'"
_NO_ANSWER: Final = "allows no answer at all"
_OVERLAP: Final = (
    "cannot be followed: branches of oneOf may overlap; send anyOf, or tell objects apart by the "
    "const of a required property"
)
_SHOWN_CHARS: Final = 300

# Of a mask's work; ordinary schemas stay below a hundredth of each.
_STEP_ITEMS: Final = 20_000
_STEP_FUEL: Final = 200_000
_LEXER_STATES: Final = 50_000


class CompiledGrammar:
    """A grammar that was read, at its beginning; never changed.

    Attributes:
        mask: [words] int32, bits of the tokens that may come first.
        end_id: Stands for the end in masks, and for no token of the model.
        behind_reasoning: The same form where it follows reasoning; None where it never does.
    """

    def __init__(self, matcher: LLMatcher, words: int, end_id: int) -> None:
        """Work out the first mask.

        Raises:
            GrammarProblem: There is none, or it takes too long.
        """
        self.end_id = end_id
        self.behind_reasoning: CompiledGrammar | None = None
        self.mask = np.zeros(words, np.int32)
        self._matcher = matcher
        started_s = time.thread_time()
        try:
            matcher.unsafe_compute_mask_ptr(self.mask.ctypes.data, self.mask.nbytes)
        except ValueError as error:
            raise GrammarProblem(_clause(str(error))) from error
        self.mask &= ~bits_of([end_id], 32 * words)
        if not self.mask.any() and not matcher.is_accepting():
            raise GrammarProblem(_NO_ANSWER)
        if time.thread_time() - started_s > MAX_FIRST_MASK_S:
            raise GrammarProblem("is too complex: its first mask takes too long; simplify it")

    def new_matcher(self) -> LLMatcher:
        """One that follows an answer from its beginning."""
        return self._matcher.deep_copy()


class GrammarCompiler:
    """Reads wishes into grammars.

    Args:
        tokenizer_json: Gives the text of the model's tokenizer.json; called once.
        vocab_size: Rows of the embedding.

    Attributes:
        vocab_size: As given.
        num_words: int32 words of the masks, at least those that the vocabulary needs.
        end_id: Stands for the end in those masks, and for no token of the model.
    """

    def __init__(self, tokenizer_json: Callable[[], str], vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.num_words = 0
        self.end_id = -1
        self._tokenizer_json = tokenizer_json
        self._tokenizer: LLTokenizer | None = None
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[object, ...], CompiledGrammar | GrammarProblem] = (
            OrderedDict()
        )

    def prepare(self) -> None:
        """Load llguidance and its tokenizer, once; for 151k tokens, 0.7 s and 150 MB.

        llguidance holds the interpreter's lock for most of that time.

        Raises:
            GrammarProblem: llguidance is not installed, or cannot use the tokenizer.
        """
        with self._lock:
            if self._tokenizer is None:
                self._tokenizer = self._make_tokenizer()

    def compile(self, wish: StructuredOutput) -> CompiledGrammar:
        """Read a wish's grammar, or take it from those kept; after `prepare`.

        Raises:
            GrammarProblem: It is no grammar, too large, or allows nothing.
        """
        key = (wish.kind, wish.text, wish.strict, wish.reasoning_end_id is not None)
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
        if found is None:
            try:
                found = self._compile(wish)
            except GrammarProblem as problem:
                found = problem
            with self._lock:
                self._kept[key] = found
                while len(self._kept) > _NUM_KEPT:
                    self._kept.popitem(last=False)
        if isinstance(found, GrammarProblem):
            raise found
        return found

    def _compile(self, wish: StructuredOutput) -> CompiledGrammar:
        read = self._read(grammar_text(wish, behind_reasoning=False))
        if wish.reasoning_end_id is not None:
            read.behind_reasoning = self._read(grammar_text(wish, behind_reasoning=True))
        return read

    def _read(self, text: str) -> CompiledGrammar:
        from llguidance import LLMatcher

        if self._tokenizer is None:
            raise RuntimeError("the compiler was not prepared")
        matcher = LLMatcher(self._tokenizer, text, log_level=0, limits=_limits())
        if matcher.is_error():
            raise GrammarProblem(_clause(matcher.get_error()))
        return CompiledGrammar(matcher, self.num_words, self.end_id)

    def _make_tokenizer(self) -> LLTokenizer:
        if importlib.util.find_spec("llguidance") is None:
            raise GrammarProblem(_INSTALL)
        from llguidance import LLTokenizer

        text, end_id = with_end_token(self._tokenizer_json())
        size = max(self.vocab_size, end_id + 1)
        try:
            made = LLTokenizer(text, n_vocab=size, eos_token=end_id)
        except ValueError as error:
            raise GrammarProblem(f"is not possible with this tokenizer: {error}") from error
        self.num_words = num_words(made.vocab_size)
        self.end_id = end_id
        return made


def _limits() -> LLParserLimits:
    from llguidance import LLParserLimits

    return LLParserLimits(
        step_max_items=_STEP_ITEMS,
        step_lexer_fuel=_STEP_FUEL,
        max_lexer_states=_LEXER_STATES,
        verbose_errors=False,
    )


def _clause(text: str) -> str:
    """What llguidance says, as a clause about a field."""
    first = text.split("\n<state>")[0].strip()
    if first.startswith("NoExtension"):
        return _NO_ANSWER
    if "coerce_one_of" in first:
        return _OVERLAP
    return f"cannot be followed: {first[:_SHOWN_CHARS]}"
