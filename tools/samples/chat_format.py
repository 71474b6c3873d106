"""The sample models' special tokens and how a conversation looks as text.

The Jinja template and `render_conversation` must agree: the model is trained on the one and
served through the other.
"""

from __future__ import annotations

from dataclasses import dataclass

END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
SPECIAL_TOKENS = (END_OF_TEXT, TURN_START, TURN_END)

CHAT_TEMPLATE = (
    "{%- for message in messages -%}\n"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}\n"
    "{{- '<|im_start|>assistant\\n' -}}\n"
    "{%- endif -%}"
)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One message of a conversation."""

    role: str
    content: str


def render_conversation(turns: list[Turn]) -> str:
    """Write turns the way `CHAT_TEMPLATE` does without a generation prompt."""
    return "".join(f"{TURN_START}{turn.role}\n{turn.content}{TURN_END}\n" for turn in turns)
