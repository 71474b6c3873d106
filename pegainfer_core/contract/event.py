"""What an engine says about its requests: one batched frame per step, one terminal per request."""

from __future__ import annotations

import enum

import msgspec

from pegainfer_core.contract.reject import RejectReason


class FinishReason(enum.StrEnum):
    """Why a request that was admitted ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Raw log-softmax (natural log, no temperature, no penalties) at one position.

    Attributes:
        logprob: Of the chosen (or given prompt) token.
        rank: 1-based rank of that token, ties ranked by ascending id.
        top_token_ids: The most likely ids, best first, ties by ascending id.
        top_logprobs: Their log-probabilities.
    """

    logprob: float
    rank: int
    top_token_ids: list[int]
    top_logprobs: list[float]


class Scheduled(msgspec.Struct, frozen=True, array_like=True, tag="sched"):
    """First event of an admitted request: its first token is about to be computed.

    Times are `time.monotonic()` seconds. `cached_tokens` came from the prefix cache.
    """

    request_id: int
    arrival_s: float
    scheduled_s: float
    prompt_tokens: int
    cached_tokens: int


class Tokens(msgspec.Struct, frozen=True, array_like=True, tag="tok"):
    """Newly generated ids, in order; `logprobs` is parallel to them when asked for."""

    request_id: int
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None


class PromptTokens(msgspec.Struct, frozen=True, array_like=True, tag="prompt"):
    """Log-probabilities of the prompt: entry i is for prompt token i, the first is None."""

    request_id: int
    logprobs: list[TokenLogprobs | None]


class KvTransfer(msgspec.Struct, frozen=True, array_like=True, tag="kv"):
    """Opaque hand-off data of a request whose KV another engine will take over."""

    request_id: int
    params: dict[str, str]


class Finished(msgspec.Struct, frozen=True, array_like=True, tag="fin"):
    """Terminal: the request ended normally or was aborted; its KV pages are accounted for.

    An end or stop token is counted in `completion_tokens` but never sent in `Tokens`; it is named
    here, with its log-probabilities when the request asked for them.
    """

    request_id: int
    reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    stop_token_id: int | None = None
    stop_logprobs: TokenLogprobs | None = None


class Error(msgspec.Struct, frozen=True, array_like=True, tag="err"):
    """Terminal: the engine failed after admission.

    `field` names the sampling field that asked for what turned out to be impossible, such as a
    grammar too complex to follow; "" where the fault is not the client's.
    """

    request_id: int
    message: str
    prompt_tokens: int
    completion_tokens: int
    field: str = ""


class Rejected(msgspec.Struct, frozen=True, array_like=True, tag="rej"):
    """Terminal: refused before any work."""

    request_id: int
    reason: RejectReason


TokenEvent = Scheduled | Tokens | PromptTokens | KvTransfer | Finished | Error | Rejected
TERMINAL_EVENTS = (Finished, Error, Rejected)


class StepFrame(msgspec.Struct, frozen=True, array_like=True, tag="frame"):
    """Everything one engine step has to say; per request in order, terminals last."""

    events: list[TokenEvent]
