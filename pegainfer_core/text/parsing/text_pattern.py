"""Patterns of JSON schemas as terminals of a grammar, where both mean the same.

Schemas have JavaScript's regular expressions, which need match a part of the text only; grammars
have Rust's, which match all of it. What they share is translated; the rest is left to nobody.
"""

import re
from typing import Final

__all__ = ["lark_pattern"]

_PART: Final = re.compile(
    r"""
    (?P<escape> \\ [dwsDWSnrt!-/:;=?@\[-`{-~] )
  | (?P<class> \[ \^? (?: \\ [dwsnrt!-/:;=?@\[-`{-~] | (?!--) [^\]\\\[&~] )+ \] )
  | (?P<open> \( (?: \?: | (?!\?) ) ) | (?P<close> \) ) | (?P<or> \| )
  | (?P<repeat> [*+?] | \{ [0-9]{1,4} (?: , (?: [0-9]{1,4} )? )? \} ) \??
  | [^\\\[\](){}|*+?^$]
    """,
    re.VERBOSE | re.DOTALL,
)
_ASCII: Final = re.compile(r"\\([dw])")
_SETS: Final = {"d": "0-9", "w": "A-Za-z0-9_", "D": "^0-9", "W": "^A-Za-z0-9_"}


def lark_pattern(pattern: str) -> str | None:
    """The expression of texts that match a schema's pattern; None where that cannot be said.

    Args:
        pattern: As in a JSON schema: some part of the text must match it. Anchors may stand at its
            ends; look-around, references, properties of letters and the like are not translated.
    """
    begins, ends = pattern.startswith("^"), pattern.endswith("$") and not pattern.endswith("\\$")
    body = pattern[begins : len(pattern) - ends]
    translated, depth, place = [], 0, 0
    while place < len(body):
        part = _PART.match(body, place)
        if part is None:
            return None
        depth += (part["open"] is not None) - (part["close"] is not None)
        if part["or"] and depth == 0 and (begins or ends):
            return None  # An anchor is of one branch only.
        translated.append(_translated(part))
        place = part.end()
    try:
        re.compile(body)
    except (re.error, OverflowError):
        return None
    around = "(?s:.*)"
    inner = "".join(translated)
    return f"/{'' if begins else around}(?:{inner}){'' if ends else around}/"


def _translated(part: re.Match[str]) -> str:
    text = part[0]
    if text == "/":
        return r"\/"
    if text == "\n":
        return r"\n"
    if part["class"] is not None:
        inside = _ASCII.sub(lambda found: _SETS[found[1]], text)
        return inside.replace(r"\/", "/").replace("/", r"\/").replace("\n", r"\n")
    if part["repeat"] is not None:
        return part["repeat"]  # Greedy or not is all the same to the whole of a text.
    if part["escape"] is not None and text[1] in _SETS:
        return f"[{_SETS[text[1]]}]"
    return text
