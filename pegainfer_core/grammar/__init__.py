"""Grammars that answers are held to: read in the background, followed token by token as masks.

Knows llguidance and bits of token ids; no scheduler, sampler or device. llguidance and the
tokenizer it works with are loaded at the first need.
"""

from pegainfer_core.grammar.answer_grammar import AnswerGrammar, GrammarState
from pegainfer_core.grammar.compiler import CompiledGrammar, GrammarCompiler, GrammarProblem
from pegainfer_core.grammar.desk import GrammarDesk
from pegainfer_core.grammar.mask_team import MaskTeam

__all__ = [
    "AnswerGrammar",
    "CompiledGrammar",
    "GrammarCompiler",
    "GrammarDesk",
    "GrammarProblem",
    "GrammarState",
    "MaskTeam",
]
