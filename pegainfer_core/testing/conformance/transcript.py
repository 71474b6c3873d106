"""What an engine said of one request, and the rules it must have kept. Knows no engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.contract import (
    TERMINAL_EVENTS,
    Error,
    Finished,
    FinishReason,
    PromptTokens,
    Rejected,
    Scheduled,
    Tokens,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.contract import (
        GenerateRequest,
        RejectReason,
        TokenEvent,
        TokenLogprobs,
    )


class Transcript:
    """A request and its events.

    Attributes:
        request: What was asked.
        events: What was said, in order.
    """

    def __init__(self, request: GenerateRequest, events: Sequence[TokenEvent]) -> None:
        self.request = request
        self.events = list(events)

    @property
    def token_ids(self) -> list[int]:
        """Generated ids."""
        return [i for event in self.events if isinstance(event, Tokens) for i in event.token_ids]

    @property
    def logprobs(self) -> list[TokenLogprobs]:
        """Of the generated ids; empty when there are none."""
        tokens = [event for event in self.events if isinstance(event, Tokens)]
        return [entry for event in tokens for entry in event.logprobs or ()]

    @property
    def prompt_logprobs(self) -> list[TokenLogprobs | None]:
        """Of the prompt; empty when there are none."""
        found = [event for event in self.events if isinstance(event, PromptTokens)]
        return [entry for event in found for entry in event.logprobs]

    @property
    def scheduled(self) -> Scheduled:
        """When work on the request began, and what came from the prefix cache."""
        found = next((event for event in self.events if isinstance(event, Scheduled)), None)
        assert found is not None, f"{self} was never scheduled: {self.events}"
        return found

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens taken from the prefix cache."""
        return self.scheduled.cached_tokens

    @property
    def finished(self) -> Finished:
        """The terminal of a request that was admitted and did not fail."""
        terminal = self._terminal()
        assert isinstance(terminal, Finished), f"{self} did not finish: {terminal}"
        return terminal

    @property
    def rejected(self) -> RejectReason:
        """Why the request was refused."""
        terminal = self._terminal()
        assert isinstance(terminal, Rejected), f"{self} was not refused: {terminal}"
        return terminal.reason

    @property
    def error(self) -> Error:
        """The terminal of a request that the engine could not complete."""
        terminal = self._terminal()
        assert isinstance(terminal, Error), f"{self} did not fail: {terminal}"
        return terminal

    def check(self) -> None:
        """Hold the events against the contract's order and sums.

        Raises:
            AssertionError: Naming the rule that was broken.
        """
        num_terminals = sum(isinstance(event, TERMINAL_EVENTS) for event in self.events)
        assert num_terminals == 1, f"{self} has {num_terminals} terminal events: {self.events}"
        last = self.events[-1]
        assert isinstance(last, TERMINAL_EVENTS), f"{self}: {last} came after the terminal event"
        self._check_start()
        self._check_tokens()
        if isinstance(last, Finished):
            self._check_usage(last)

    def __repr__(self) -> str:
        """Enough to find the request in a failure's message."""
        params = self.request.params
        return f"the request of {len(self.request.prompt_token_ids)} prompt tokens with {params}"

    def _terminal(self) -> TokenEvent | None:
        return next((event for event in self.events if isinstance(event, TERMINAL_EVENTS)), None)

    def _check_start(self) -> None:
        num_scheduled = sum(isinstance(event, Scheduled) for event in self.events)
        first = self.events[0]
        if num_scheduled == 0 and len(self.events) == 1:
            served = isinstance(first, Finished) and first.reason is not FinishReason.ABORT
            assert not served, f"{self} finished without a Scheduled event"
            return
        assert num_scheduled == 1, f"{self} has {num_scheduled} Scheduled events"
        assert isinstance(first, Scheduled), f"{self} begins with {first}, not with Scheduled"
        assert not isinstance(self.events[-1], Rejected), f"{self} was refused after Scheduled"
        num_prompt = len(self.request.prompt_token_ids)
        assert first.prompt_tokens == num_prompt, f"{self}: wrong prompt_tokens in {first}"
        assert 0 <= first.cached_tokens < num_prompt, (
            f"{self}: {first.cached_tokens} tokens from the prefix cache; at least one prompt "
            "token must be computed"
        )
        assert first.arrival_s <= first.scheduled_s, f"{self} was scheduled before it arrived"

    def _check_tokens(self) -> None:
        asked = self.request.params.logprobs is not None
        for event in self.events:
            if not isinstance(event, Tokens):
                continue
            assert event.token_ids, f"{self} has a Tokens event without tokens"
            assert (event.logprobs is not None) == asked, f"{self}: logprobs only when asked for"
            assert event.logprobs is None or len(event.logprobs) == len(event.token_ids)

    def _check_usage(self, last: Finished) -> None:
        assert last.prompt_tokens == len(self.request.prompt_token_ids), f"{self}: {last}"
        by_stop = last.stop_token_id is not None
        # A form that is complete stops an answer that no token can end.
        by_form = self.request.params.structured is not None and not by_stop
        assert by_form or by_stop == (last.reason is FinishReason.STOP), (
            f"{self}: reason {last.reason} with stop_token_id {last.stop_token_id}"
        )
        expected = len(self.token_ids) + by_stop
        assert last.completion_tokens == expected, (
            f"{self}: completion_tokens is {last.completion_tokens}, but {len(self.token_ids)} "
            f"tokens were sent{' and one ended it' if by_stop else ''}"
        )
        asked = self.request.params.logprobs is not None
        assert (last.stop_logprobs is not None) == (by_stop and asked), f"{self}: {last}"
