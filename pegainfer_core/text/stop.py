"""Finding stop strings in a text that arrives in pieces.

Knows texts only. Stop strings are defined on the visible text, wherever tokens begin or end.
"""

from collections.abc import Sequence

__all__ = ["StopMatcher", "beginning_at_end"]


class StopMatcher:
    """Releases the text before the first stop string and nothing that could still belong to one.

    The match that is complete first wins; of several that end with the same character, the one
    that starts first. The result is the same however the text is cut into pieces.

    Attributes:
        matched: the stop string that was found, or None.
    """

    __slots__ = ("_first_chars", "_held", "_include", "_stops", "matched")

    def __init__(self, stops: Sequence[str], *, include_stop: bool = False) -> None:
        """Prepare for one answer.

        Args:
            stops: stop strings.
            include_stop: release the stop string itself too.

        Raises:
            ValueError: a stop string is empty.
        """
        if not all(stops):
            raise ValueError("a stop string must not be empty")
        self._stops = tuple(dict.fromkeys(stops))
        self._first_chars = frozenset(stop[0] for stop in self._stops)
        self._include = include_stop
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """Take the next piece of text; return what may be shown now, "" after a match."""
        if self.matched is not None:
            return ""
        # Most pieces neither continue nor begin a stop string.
        if not self._held and self._first_chars.isdisjoint(text):
            return text
        text = self._held + text
        found = self._find(text)
        if found is not None:
            end, start, stop = found
            return self._stop(stop, text[: end if self._include else start])
        cut = min(beginning_at_end(stop, text) for stop in self._stops)
        self._held = text[cut:]
        return text[:cut]

    def push_hidden(self, hidden: str, unfinished: str = "") -> str:
        """Take a token that is not shown, such as a special one, which a stop string may name.

        It ends the text if a stop string is the token's text, or ends in it and the text before
        agrees. Otherwise it leaves no trace: the texts around it are neighbours.

        Args:
            hidden: text of the token.
            unfinished: text of incomplete characters that has not been pushed.

        Returns:
            All text before the stop string when it is found (see `matched`), else "".
        """
        if self.matched is not None:
            return ""
        before = self._held + unfinished
        for stop in self._stops:
            if stop.endswith(hidden) and before.endswith(visible := stop.removesuffix(hidden)):
                text = before.removesuffix(visible)
                return self._stop(stop, text + stop if self._include else text)
        return ""

    def flush(self) -> str:
        """End the text: return what was held back."""
        text, self._held = self._held, ""
        return text

    def _stop(self, stop: str, text: str) -> str:
        self.matched = stop
        self._held = ""
        return text

    def _find(self, text: str) -> tuple[int, int, str] | None:
        """End, start and stop string of the match that wins in a text."""
        matches = [
            (start + len(stop), start, stop)
            for stop in self._stops
            if (start := text.find(stop)) >= 0
        ]
        return min(matches, default=None)


def beginning_at_end(stop: str, text: str) -> int:
    """Where the longest proper beginning of `stop` that ends `text` starts; its end if none."""
    start = text.find(stop[0], max(0, len(text) - len(stop) + 1))
    while start >= 0 and not stop.startswith(text[start:]):
        start = text.find(stop[0], start + 1)
    return start if start >= 0 else len(text)
