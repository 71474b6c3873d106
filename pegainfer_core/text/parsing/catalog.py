"""The parsers that core has, by the names that users and families choose them with."""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

from pegainfer_core.text.parsing.call_grammar import CallableFunction, CallFormat, Marker
from pegainfer_core.text.parsing.hermes import HermesFormat
from pegainfer_core.text.parsing.marked_json import DeepSeekFormat, KimiFormat
from pegainfer_core.text.parsing.protocol import ReasoningParserFactory, ToolParserFactory, Tools
from pegainfer_core.text.parsing.qwen_xml import QwenXmlFormat
from pegainfer_core.text.parsing.think import ThinkParser
from pegainfer_core.text.parsing.tool_blocks import ToolBlockParser
from pegainfer_core.text.parsing.tool_format import ToolFormat

__all__ = ["REASONING_PARSERS", "TOOL_PARSERS"]


class _CallingFormat(ToolFormat, CallFormat, Protocol):
    pass


class BlockParsers:
    """Makes the parsers of one format; implements `CallGrammar`."""

    def __init__(self, form: Callable[[], _CallingFormat]) -> None:
        """Make parsers of a format, of which each answer gets its own."""
        self._form = form

    def __call__(self, tools: Tools) -> ToolBlockParser:
        """A parser for an answer to a request with these tools."""
        return ToolBlockParser(self._form(), tools)

    @property
    def openings(self) -> Collection[str]:
        """Markers that begin a call, or announce calls."""
        form = self._form()
        return [*form.heads, *form.blocks]

    def call_grammar(
        self, functions: Sequence[CallableFunction], mark: Marker, *, many: bool
    ) -> str:
        """See `CallGrammar.call_grammar`."""
        form = self._form()
        names = [f"call_{number}" for number in range(len(functions))]
        rules = [form.call_rules(*pair, mark) for pair in zip(names, functions, strict=True)]
        section = form.section("call", mark, many=many)
        return f"calls: {section}\ncall: {' | '.join(names)}\n{''.join(rules)}"


TOOL_PARSERS: Final[Mapping[str, ToolParserFactory]] = MappingProxyType(
    {
        "deepseek": BlockParsers(DeepSeekFormat),
        "hermes": BlockParsers(HermesFormat),
        "kimi_k2": BlockParsers(KimiFormat),
        "qwen3_coder": BlockParsers(QwenXmlFormat),
    }
)
REASONING_PARSERS: Final[Mapping[str, ReasoningParserFactory]] = MappingProxyType(
    {"think": ThinkParser}
)
