"""What an engine process still owes, so that its end can be told to everybody who waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.contract import TERMINAL_EVENTS, Error, Tokens

if TYPE_CHECKING:
    from pegainfer_core.contract import GenerateRequest, StepFrame


class OpenRequests:
    """Requests without a terminal event, and how many tokens each has received."""

    def __init__(self) -> None:
        self._counts: dict[int, _Counts] = {}

    def __contains__(self, request_id: int) -> bool:
        """Whether a request waits for its terminal event."""
        return request_id in self._counts

    def add(self, request: GenerateRequest) -> None:
        """A request is about to be sent."""
        self._counts[request.request_id] = _Counts(len(request.prompt_token_ids))

    def discard(self, request_id: int) -> None:
        """It was not sent after all."""
        del self._counts[request_id]

    def note(self, frame: StepFrame) -> None:
        """Count the tokens of a frame, and close what it ends."""
        counts = self._counts
        for event in frame.events:
            if isinstance(event, Tokens):
                counts[event.request_id].completion_tokens += len(event.token_ids)
            elif isinstance(event, TERMINAL_EVENTS):
                counts.pop(event.request_id, None)

    def fail_all(self, message: str) -> list[Error]:
        """Close everything; returns the terminal events."""
        failed, self._counts = self._counts, {}
        return [
            Error(request_id, message, counts.prompt_tokens, counts.completion_tokens)
            for request_id, counts in failed.items()
        ]


class _Counts:
    __slots__ = ("completion_tokens", "prompt_tokens")

    def __init__(self, prompt_tokens: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.completion_tokens = 0
