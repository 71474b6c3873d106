"""The parsers that core has, by the names that users and families choose them with."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from pegainfer_core.text.parsing.hermes import HermesFormat
from pegainfer_core.text.parsing.marked_json import DeepSeekFormat, KimiFormat
from pegainfer_core.text.parsing.protocol import ReasoningParserFactory, ToolParserFactory, Tools
from pegainfer_core.text.parsing.qwen_xml import QwenXmlFormat
from pegainfer_core.text.parsing.think import ThinkParser
from pegainfer_core.text.parsing.tool_blocks import ToolBlockParser
from pegainfer_core.text.parsing.tool_format import ToolFormat

__all__ = ["REASONING_PARSERS", "TOOL_PARSERS"]


def _blocks_of(form: Callable[[], ToolFormat]) -> ToolParserFactory:
    def make(tools: Tools) -> ToolBlockParser:
        return ToolBlockParser(form(), tools)

    return make


TOOL_PARSERS: Final[Mapping[str, ToolParserFactory]] = MappingProxyType(
    {
        "deepseek": _blocks_of(DeepSeekFormat),
        "hermes": _blocks_of(HermesFormat),
        "kimi_k2": _blocks_of(KimiFormat),
        "qwen3_coder": _blocks_of(QwenXmlFormat),
    }
)
REASONING_PARSERS: Final[Mapping[str, ReasoningParserFactory]] = MappingProxyType(
    {"think": ThinkParser}
)
