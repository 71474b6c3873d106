"""Grammars over the byte tokenizer, and answers that follow them at random."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pegainfer_core.contract import GenerateRequest, SamplingParams, StructuredOutput
from pegainfer_core.engine.grammar_opening import _tokenizer_json
from pegainfer_core.grammar import AnswerGrammar, GrammarCompiler, GrammarDesk

VOCAB = 300
"""Of a model whose embedding has rows that the byte tokenizer knows nothing of."""
EOS, THINK, END_THINK = 256, 258, 259
TIMEOUT_S = 30.0


def compiler(folder: Path, vocab_size: int = VOCAB) -> GrammarCompiler:
    return GrammarCompiler(lambda: _tokenizer_json(folder), vocab_size)


def request(form: StructuredOutput, request_id: int = 1, **params: object) -> GenerateRequest:
    return GenerateRequest(
        request_id=request_id,
        prompt_token_ids=[1],
        params=SamplingParams(structured=form, **params),
        eos_token_ids=[EOS],
    )


def read(desk: GrammarDesk, wish: GenerateRequest) -> tuple[str, AnswerGrammar | None]:
    """What is wrong with a request's grammar, or the grammar."""
    done, problems = threading.Event(), []

    def end(problem: str) -> None:
        problems.append(problem)
        done.set()

    desk.prepare(wish, end)
    assert done.wait(TIMEOUT_S)
    return problems[0], desk.take(wish.request_id)


def begin(desk: GrammarDesk, form: StructuredOutput, **params: object) -> AnswerGrammar:
    problem, grammar = read(desk, request(form, **params))
    assert problem == "" and grammar is not None, problem
    return grammar


def ids_of(mask: np.ndarray, vocab_size: int = VOCAB) -> list[int]:
    """The ids of a mask."""
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    assert not bits[vocab_size:].any()
    return np.flatnonzero(bits).tolist()


def walk(
    grammar: AnswerGrammar, seed: int, max_tokens: int = 400, ends: tuple[int, ...] = (EOS,)
) -> Iterator[int]:
    """Tokens of an answer that chooses among what is allowed; ends behind an end token."""
    chance = random.Random(seed)
    for count in range(max_tokens):
        allowed = ids_of(grammar.mask(count))
        assert not grammar.error, grammar.error
        if grammar.finished:
            return
        assert allowed
        end = [i for i in allowed if i in ends]
        token_id = end[0] if end and chance.random() < 0.5 else chance.choice(allowed)
        yield token_id
        if token_id in ends:
            return
        grammar.advance(token_id)


def text_of(token_ids: list[int]) -> str:
    """Bytes, and added tokens by name."""
    names = {THINK: b"<think>", END_THINK: b"</think>", EOS: b"", 260: b"ab##cd"}
    return b"".join(names.get(i, bytes([i % 256])) for i in token_ids).decode("utf-8", "replace")
