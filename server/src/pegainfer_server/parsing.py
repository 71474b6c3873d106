"""Which parsers take the answers of chats apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar

from pegainfer_core.text import AnswerParser

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.plugin import ChatProfile, HookCalls, Offers
    from pegainfer_core.text import (
        ReasoningParser,
        ReasoningParserFactory,
        ToolParser,
        ToolParserFactory,
    )

T = TypeVar("T")

_NONE = "none"


@dataclass(frozen=True, kw_only=True)
class ChatParsers:
    """The parsers of the served model; None where it has none."""

    reasoning: ReasoningParserFactory | None = None
    tools: ToolParserFactory | None = None

    @classmethod
    def chosen(
        cls,
        hooks: HookCalls,
        profile: ChatProfile,
        *,
        reasoning: str | None = None,
        tools: str | None = None,
    ) -> Self:
        """Find parsers by name.

        Args:
            hooks: Offer them.
            profile: The family's choice.
            reasoning: The user's choice instead; "none" for no parser.
            tools: Likewise.

        Raises:
            PluginFault: Nobody offers a parser of that name, or two plugins do.
        """
        return cls(
            reasoning=_choose(hooks.reasoning_parsers, reasoning or profile.reasoning_parser),
            tools=_choose(hooks.tool_parsers, tools or profile.tool_parser),
        )


@dataclass(frozen=True, kw_only=True)
class Parsing:
    """How one answer is taken apart.

    Attributes:
        reasoning: Makes its reasoning parser.
        tools: Makes its tool-call parser.
        one_call: End the answer before a second call.
        hide_reasoning: Show no reasoning.
        forced: The client has named the function that is called: its call is no reason to end.
    """

    reasoning: Callable[[], ReasoningParser] | None = None
    tools: Callable[[], ToolParser] | None = None
    one_call: bool = False
    hide_reasoning: bool = False
    forced: bool = False

    def parser(self) -> AnswerParser:
        """A parser for one answer."""
        return AnswerParser(
            None if self.reasoning is None else self.reasoning(),
            None if self.tools is None else self.tools(),
        )


def _choose(offers: Callable[[], Offers[T]], name: str | None) -> T | None:
    return None if name in (None, _NONE) else offers().choose(name)
