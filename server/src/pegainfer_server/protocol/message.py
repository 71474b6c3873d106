"""Chat messages as clients send them; the text layer checks what is inside parts and calls."""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

Role = Literal["system", "developer", "user", "assistant", "tool"]


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One turn of the conversation. Fields that are absent stay absent in the template.

    Attributes:
        role: Who speaks; "developer" is the newer name of "system".
        content: Text, or parts of type "text", which are joined with a newline.
        tool_calls: Of an assistant's turn: `{"id", "type", "function": {"name", "arguments"}}`.
        tool_call_id: Of a tool's turn: the call it answers.
        reasoning_content: Of an assistant's turn; `reasoning` and `thinking` mean the same.
    """

    role: Role
    content: str | list[dict[str, object]] | UnsetType | None = UNSET
    name: str | UnsetType | None = UNSET
    tool_calls: list[dict[str, object]] | UnsetType | None = UNSET
    tool_call_id: str | UnsetType | None = UNSET
    reasoning_content: str | UnsetType | None = UNSET
    reasoning: str | UnsetType | None = UNSET
    thinking: str | UnsetType | None = UNSET
    refusal: str | UnsetType | None = UNSET
