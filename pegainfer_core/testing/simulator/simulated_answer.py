"""What a simulated client saw of one request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pegainfer_core.contract import TERMINAL_EVENTS, Finished, FinishReason, Scheduled, Tokens
from pegainfer_core.testing.simulator.simulation_error import SimulationError
from pegainfer_core.testing.simulator.token_rule import answer

if TYPE_CHECKING:
    from pegainfer_core.contract import TokenEvent
    from pegainfer_core.testing.simulator.trace import Arrival


@dataclass(slots=True)
class SimulatedAnswer:
    """Tokens and when they came; times are the client's, in seconds.

    Attributes:
        arrival: The request.
        token_ids: Tokens so far.
        event_s: When each piece of the stream came.
        scheduled_s: When the engine began with it.
        cached_tokens: Prompt tokens found in the prefix cache.
        terminal: Its last event.
    """

    arrival: Arrival
    token_ids: list[int] = field(default_factory=list)
    event_s: list[float] = field(default_factory=list)
    scheduled_s: float = 0.0
    cached_tokens: int = 0
    terminal: TokenEvent | None = None

    def take(self, event: TokenEvent, began_s: float, heard_s: float) -> None:
        """Add an event.

        Args:
            event: What the engine says.
            began_s: When the step began that it tells of.
            heard_s: When the client hears it.

        Raises:
            SimulationError: The request had ended.
        """
        if self.terminal is not None:
            raise SimulationError(f"an event after the end: {event}")
        if isinstance(event, Scheduled):
            self.scheduled_s = began_s
            self.cached_tokens = event.cached_tokens
        elif isinstance(event, Tokens):
            self.token_ids += event.token_ids
            self.event_s.append(heard_s)
        if isinstance(event, TERMINAL_EVENTS):
            self.terminal = event

    def check(self, vocab_size: int) -> None:
        """Hold it against the rule of the tokens.

        Raises:
            SimulationError: It has not ended, not at its full length, or with a wrong token.
        """
        request = f"client {self.arrival.client}, turn {self.arrival.turn}"
        terminal = self.terminal
        end = FinishReason.LENGTH if self.arrival.has_limit else FinishReason.STOP
        if not isinstance(terminal, Finished) or terminal.reason is not end:
            raise SimulationError(f"{request}: ended with {terminal} and not at its full length")
        right = answer(self.arrival.prompt_token_ids, self.arrival.max_tokens, vocab_size)
        if self.token_ids != right:
            wrong = sum(a != b for a, b in zip(self.token_ids, right, strict=False))
            raise SimulationError(
                f"{request}: {len(self.token_ids)} tokens of {len(right)}, {wrong} of them wrong"
            )
