"""Text in and out of a model: tokenizer, detokeniser, stop strings, chat templates, defaults.

Every part takes a checkpoint folder or plain values; none knows HTTP, engines or GPUs.
"""

from pegainfer_core.text.chat_template import ChatTemplate
from pegainfer_core.text.detokenizer import IncrementalDetokenizer
from pegainfer_core.text.errors import (
    ChatTemplateError,
    GenerationConfigError,
    TextError,
    TokenizerError,
)
from pegainfer_core.text.generation_config import GenerationDefaults, end_token_ids
from pegainfer_core.text.model_text import ModelText
from pegainfer_core.text.output import TextDelta, TextOutput
from pegainfer_core.text.parsing import (
    REASONING_PARSERS,
    TOOL_PARSERS,
    AnswerDelta,
    AnswerParser,
    CallableFunction,
    CallGrammar,
    MarkedReasoning,
    ReasoningParser,
    ReasoningParserFactory,
    ToolBlockParser,
    ToolCallDelta,
    ToolFormat,
    ToolParser,
    ToolParserFactory,
    Tools,
    WrittenCall,
    join_deltas,
    json_rule,
    lark_text,
    new_call_id,
)
from pegainfer_core.text.reasoning_state import prompt_ends_in_reasoning
from pegainfer_core.text.special_tokens import SpecialTokens
from pegainfer_core.text.stop import StopMatcher
from pegainfer_core.text.tokenizer import Tokenizer
from pegainfer_core.text.tokenizer_loading import TokenizerLoader

__all__ = [
    "REASONING_PARSERS",
    "TOOL_PARSERS",
    "AnswerDelta",
    "AnswerParser",
    "CallGrammar",
    "CallableFunction",
    "ChatTemplate",
    "ChatTemplateError",
    "GenerationConfigError",
    "GenerationDefaults",
    "IncrementalDetokenizer",
    "MarkedReasoning",
    "ModelText",
    "ReasoningParser",
    "ReasoningParserFactory",
    "SpecialTokens",
    "StopMatcher",
    "TextDelta",
    "TextError",
    "TextOutput",
    "Tokenizer",
    "TokenizerError",
    "TokenizerLoader",
    "ToolBlockParser",
    "ToolCallDelta",
    "ToolFormat",
    "ToolParser",
    "ToolParserFactory",
    "Tools",
    "WrittenCall",
    "end_token_ids",
    "join_deltas",
    "json_rule",
    "lark_text",
    "new_call_id",
    "prompt_ends_in_reasoning",
]
