"""Where requests wait until their grammar was read, off the engine's thread."""

from __future__ import annotations

import logging
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from pegainfer_core.grammar.answer_grammar import AnswerGrammar
from pegainfer_core.grammar.compiler import GrammarProblem
from pegainfer_core.grammar.mask_team import MaskTeam

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.contract import GenerateRequest
    from pegainfer_core.grammar.compiler import GrammarCompiler

__all__ = ["GrammarDesk"]

MAX_READING_S: Final = 10.0
"""Time for reading one grammar; the request is refused then."""
_NUM_READERS: Final = 2
_MOST_READERS: Final = 6

logger = logging.getLogger(__name__)


class _Reading:
    """One request at the desk; it is answered once, whoever is first."""

    def __init__(
        self, request: GenerateRequest, done: Callable[[str], None], desk: GrammarDesk
    ) -> None:
        self.request = request
        self._done = done
        self._desk = desk
        self._lock = threading.Lock()
        self._open = True

    def end(self, problem: str, grammar: AnswerGrammar | None = None) -> bool:
        """Tell the request's owner; False if that was done before."""
        with self._lock:
            if not self._open:
                return False
            self._open = False
        if grammar is not None:
            self._desk.put(self.request.request_id, grammar)
        self._done(problem)
        return True


class GrammarDesk:
    """Reads grammars on threads of its own, and keeps what was read until it is taken.

    Threads start with the first request. A grammar that takes too long is given up, and its thread
    replaced, until too many are stuck: then the others wait for them.

    Args:
        compiler: Reads.
        team: Follows answers.
    """

    def __init__(self, compiler: GrammarCompiler, team: MaskTeam | None = None) -> None:
        self._compiler = compiler
        self._team = team or MaskTeam()
        self._read: dict[int, AnswerGrammar] = {}
        self._queue: SimpleQueue[_Reading | None] = SimpleQueue()
        self._num_readers = 0
        self._lock = threading.Lock()
        self._closed = False

    def prepare(self, request: GenerateRequest, done: Callable[[str], None]) -> None:
        """Read a request's grammar.

        Args:
            request: With a wish for one.
            done: Called once, perhaps at once, perhaps later and on another thread: with "" when
                the grammar can be taken, else with what is wrong with it, as a clause.
        """
        problem = self._problem(request)
        if problem is not None:
            done(problem)
            return
        if self._num_readers < _NUM_READERS:
            self._add_reader()
        self._queue.put(_Reading(request, done, self))

    def put(self, request_id: int, grammar: AnswerGrammar) -> None:
        """Keep a grammar until it is taken or dropped."""
        self._read[request_id] = grammar

    def take(self, request_id: int) -> AnswerGrammar | None:
        """The grammar of a request, once."""
        return self._read.pop(request_id, None)

    def close(self) -> None:
        """Let the threads end; nothing waits for them."""
        self._closed = True
        self._team.close()
        for _ in range(_MOST_READERS):
            self._queue.put(None)

    def _problem(self, request: GenerateRequest) -> str | None:
        wish = request.params.structured
        if wish is None:
            raise ValueError(f"request {request.request_id} asks for no form")
        return wish.problem(self._compiler.vocab_size)

    def _add_reader(self) -> None:
        with self._lock:
            if self._num_readers >= _MOST_READERS or self._closed:
                return
            self._num_readers += 1
            name = f"pegainfer-grammar-{self._num_readers}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while (reading := self._queue.get()) is not None and not self._closed:
            self._serve(reading)
            del reading

    def _serve(self, reading: _Reading) -> None:
        try:
            self._compiler.prepare()
            timer = threading.Timer(MAX_READING_S, self._give_up, [reading])
            timer.daemon = True
            timer.start()
            try:
                grammar = self._follower(reading.request)
            finally:
                timer.cancel()
        except GrammarProblem as problem:
            reading.end(str(problem))
        except Exception as error:
            logger.exception("a grammar could not be read")
            reading.end(f"could not be read: {type(error).__name__}: {error}")
        else:
            reading.end("", grammar)

    def _follower(self, request: GenerateRequest) -> AnswerGrammar:
        wish = request.params.structured
        if wish is None:
            raise ValueError(f"request {request.request_id} asks for no form")
        read = self._compiler.compile(wish)
        return AnswerGrammar(read, request, self._compiler.vocab_size, self._team)

    def _give_up(self, reading: _Reading) -> None:
        if reading.end(f"takes longer than {MAX_READING_S:g} s to read; simplify it"):
            self._add_reader()
