"""Why an engine refuses a request before any work: typed, so that servers can map each reason."""

from __future__ import annotations

import msgspec


class ContextLength(msgspec.Struct, frozen=True, kw_only=True, tag="context_length"):
    """Prompt plus requested output exceed the context window (all in tokens)."""

    prompt_tokens: int
    max_tokens: int
    limit_tokens: int

    def __str__(self) -> str:
        return (
            f"the prompt has {self.prompt_tokens} tokens and {self.max_tokens} output tokens were "
            f"asked for, but the context length is {self.limit_tokens} tokens"
        )


class KvBudget(msgspec.Struct, frozen=True, kw_only=True, tag="kv_budget"):
    """The request can never fit the KV pool (in pages)."""

    needed_pages: int
    total_pages: int
    page_tokens: int

    def __str__(self) -> str:
        return (
            f"the request needs {self.needed_pages} KV pages of {self.page_tokens} tokens, but the "
            f"pool has {self.total_pages}; shorten it or enlarge the pool"
        )


class InvalidToken(msgspec.Struct, frozen=True, kw_only=True, tag="invalid_token"):
    """A prompt id lies outside the embedding."""

    token_id: int
    vocab_size: int

    def __str__(self) -> str:
        return f"token id {self.token_id} is outside the vocabulary of {self.vocab_size}"


class EmptyPrompt(msgspec.Struct, frozen=True, kw_only=True, tag="empty_prompt"):
    """The prompt has no tokens."""

    def __str__(self) -> str:
        return "the prompt has no tokens"


class InvalidParam(msgspec.Struct, frozen=True, kw_only=True, tag="invalid_param"):
    """A sampling field is out of range."""

    field: str
    problem: str

    def __str__(self) -> str:
        return f"{self.field} {self.problem}"


class Unsupported(msgspec.Struct, frozen=True, kw_only=True, tag="unsupported"):
    """This engine does not honour a field that was given."""

    field: str

    def __str__(self) -> str:
        return f"{self.field} is not supported by this model's engine"


class UnknownLora(msgspec.Struct, frozen=True, kw_only=True, tag="unknown_lora"):
    """No adapter of this name is loaded."""

    name: str

    def __str__(self) -> str:
        return f"no LoRA adapter named {self.name!r} is loaded"


class QueueFull(msgspec.Struct, frozen=True, kw_only=True, tag="queue_full"):
    """Too many requests wait already."""

    num_waiting: int

    def __str__(self) -> str:
        return f"{self.num_waiting} requests are already waiting; try again later"


class Draining(msgspec.Struct, frozen=True, kw_only=True, tag="draining"):
    """The engine is shutting down and takes no new work."""

    def __str__(self) -> str:
        return "the engine is shutting down and takes no new requests"


RejectReason = (
    ContextLength
    | KvBudget
    | InvalidToken
    | EmptyPrompt
    | InvalidParam
    | Unsupported
    | UnknownLora
    | QueueFull
    | Draining
)
