"""What an observer learns about one ended request. Holds no prompt and no answer."""

from __future__ import annotations

import msgspec


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One ended request, as told to `request_finished`.

    Times are seconds from the request's arrival, None when that point was never reached.

    Attributes:
        request_id: The engine's id.
        external_id: The client's or the server's public id.
        model: Name the request was served under.
        family: Id of the model family.
        endpoint: Path of the HTTP route, empty for offline requests.
        stream: Whether the answer was streamed.
        finish_reason: "stop", "length", "abort", "error" or "rejected".
        detail: Why, for "error" and "rejected".
        arrival_unix_s: When the request arrived, seconds since the epoch.
        scheduled_s: Until its first tokens were about to be computed.
        first_token_s: Until its first token (time to first token).
        finished_s: Until its end.
        prompt_tokens: Tokens of the prompt.
        cached_tokens: Those of them taken from the prefix cache.
        completion_tokens: Tokens generated, an end token included.
        lora: Name of the adapter used.
    """

    request_id: int
    external_id: str
    model: str
    family: str
    finish_reason: str
    arrival_unix_s: float
    finished_s: float
    endpoint: str = ""
    stream: bool = False
    detail: str = ""
    scheduled_s: float | None = None
    first_token_s: float | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    lora: str | None = None
