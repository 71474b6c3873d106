"""Answers taken apart: reasoning, content and tool calls, from text that arrives in pieces.

Knows the forms that models write in; knows no protocol, tokenizer or engine.
"""

from pegainfer_core.text.parsing.answer_parser import AnswerParser
from pegainfer_core.text.parsing.call_grammar import (
    CallableFunction,
    CallGrammar,
    json_rule,
    lark_text,
)
from pegainfer_core.text.parsing.catalog import REASONING_PARSERS, TOOL_PARSERS
from pegainfer_core.text.parsing.delta import (
    AnswerDelta,
    ToolCallDelta,
    join_deltas,
    new_call_id,
)
from pegainfer_core.text.parsing.protocol import (
    MarkedReasoning,
    ReasoningParser,
    ReasoningParserFactory,
    ToolParser,
    ToolParserFactory,
    Tools,
)
from pegainfer_core.text.parsing.tool_blocks import ToolBlockParser
from pegainfer_core.text.parsing.tool_format import ToolFormat, WrittenCall

__all__ = [
    "REASONING_PARSERS",
    "TOOL_PARSERS",
    "AnswerDelta",
    "AnswerParser",
    "CallGrammar",
    "CallableFunction",
    "MarkedReasoning",
    "ReasoningParser",
    "ReasoningParserFactory",
    "ToolBlockParser",
    "ToolCallDelta",
    "ToolFormat",
    "ToolParser",
    "ToolParserFactory",
    "Tools",
    "WrittenCall",
    "join_deltas",
    "json_rule",
    "lark_text",
    "new_call_id",
]
