"""What ended and running requests say about latency and size, from the server's side."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pegainfer_server.metrics.histogram import Histogram

if TYPE_CHECKING:
    from pegainfer_core.plugin import RequestRecord
    from pegainfer_server.metrics.exposition import Exposition

_FIRST_TOKEN_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
_TOKEN_GAP_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
_REQUEST_S = (
    0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0,
    50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
_TOKENS = (
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000,
    100_000, 200_000,
)  # fmt: skip


class RequestMetrics:
    """Histograms and counters over requests; belongs to the event loop.

    Attributes:
        token_gap: Seconds between tokens of a request (inter-token latency).
        finished: Ended requests by reason.
        responses: HTTP responses by status; 499 for clients that left before theirs.
        rejected: Requests that got an error instead of an answer, by its code.
        num_stalled: Connections that broke because their clients took nothing.
    """

    def __init__(self) -> None:
        self.token_gap = Histogram(_TOKEN_GAP_S)
        self.finished: Counter[str] = Counter()
        self.responses: Counter[int] = Counter()
        self.rejected: Counter[str] = Counter({"queue_full": 0})
        self.num_stalled = 0
        self._first_token = Histogram(_FIRST_TOKEN_S)
        self._e2e = Histogram(_REQUEST_S)
        self._queue = Histogram(_REQUEST_S)
        self._prefill = Histogram(_REQUEST_S)
        self._decode = Histogram(_REQUEST_S)
        self._prompt_tokens = Histogram(_TOKENS)
        self._generation_tokens = Histogram(_TOKENS)

    def take(self, record: RequestRecord) -> None:
        """Account for an ended request."""
        self.finished[record.finish_reason] += 1
        if record.scheduled_s is None:
            return
        self._queue.observe(record.scheduled_s)
        self._prompt_tokens.observe(record.prompt_tokens)
        self._generation_tokens.observe(record.completion_tokens)
        if record.first_token_s is not None:
            self._first_token.observe(record.first_token_s)
            self._prefill.observe(record.first_token_s - record.scheduled_s)
            self._decode.observe(record.finished_s - record.first_token_s)
        if record.finish_reason in ("stop", "length"):
            self._e2e.observe(record.finished_s)

    def write(self, out: Exposition) -> None:
        """Add everything to a scrape."""
        out.counters(
            "request_success_total",
            "Ended requests by reason.",
            "finished_reason",
            self.finished,
        )
        out.counters(
            "http_responses_total",
            "Responses begun, by status (499: the client had left).",
            "status",
            {str(status): count for status, count in sorted(self.responses.items())},
        )
        out.counters(
            "request_rejected_total",
            "Requests refused by server or engine, by the code of the error.",
            "code",
            self.rejected,
        )
        out.counter(
            "stalled_connections_total",
            "Connections broken because the client took nothing.",
            self.num_stalled,
        )
        for name, help_text, histogram in (
            ("time_to_first_token_seconds", "Arrival to first token.", self._first_token),
            ("inter_token_latency_seconds", "Gap between tokens of a request.", self.token_gap),
            ("e2e_request_latency_seconds", "Arrival to end, answered requests.", self._e2e),
            ("request_queue_time_seconds", "Arrival to scheduling.", self._queue),
            ("request_prefill_time_seconds", "Scheduling to first token.", self._prefill),
            ("request_decode_time_seconds", "First token to end.", self._decode),
            ("request_prompt_tokens", "Prompt tokens of a request.", self._prompt_tokens),
            ("request_generation_tokens", "Tokens generated.", self._generation_tokens),
        ):
            out.histogram(name, help_text, histogram)
