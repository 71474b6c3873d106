"""A model that says what a test wants it to say, to whatever it is asked."""

from __future__ import annotations

from dataclasses import dataclass

from pegainfer_core.testing import THINK_ID

from .scripted_engine import Script

#: Ends every prompt, and occurs nowhere else. White space: it hides no tag before it.
MARK = "\x1f"
#: Shows tools and history; opens a think block when asked to.
TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}[{{ m.role }}]"
    "{% if m.reasoning_content %}~{{ m.reasoning_content }}~{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}({{ c.function.arguments | tojson }}){% endfor %}{% endfor %}"
    "{% if enable_thinking %}<think>\n{% endif %}"
) + MARK


@dataclass
class Spoken(Script):
    """A script that is the same sentence every time.

    Attributes:
        sentence: What the model says, token by token; then its end token.
    """

    sentence: tuple[int, ...] = ()

    def say(self, *parts: str | int) -> None:
        """Set the sentence: texts byte by byte, and ids."""
        self.sentence = tuple(
            token
            for part in parts
            for token in ([part] if isinstance(part, int) else part.encode())
        )

    def heard(self) -> str:
        """The newest prompt as text, up to its mark."""
        ids = self.requests[-1].prompt_token_ids
        text = b"".join(b"<think>" if i == THINK_ID else bytes([i]) for i in ids)
        return text.decode().removesuffix(MARK)

    def next_token(self, ids: list[int]) -> int:
        num_said = len(ids) - 1 - max(i for i, token in enumerate(ids) if token == ord(MARK))
        return self.sentence[num_said] if num_said < len(self.sentence) else self.default
