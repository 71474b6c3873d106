"""`/v1/completions`: request and response."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pegainfer_server.protocol.logprobs import CompletionLogprobs, PromptLogprobs
from pegainfer_server.protocol.sampling_fields import SamplingFields, stated
from pegainfer_server.protocol.usage import Usage

DEFAULT_MAX_TOKENS = 16
"""OpenAI's default for completions."""


class CompletionRequest(SamplingFields, frozen=True, kw_only=True):
    """Continue a prompt.

    Attributes:
        prompt: A text or a list of token ids, or a list of such; each gets `n` answers.
        max_tokens: Most tokens to generate; 0 only returns the echoed prompt.
        echo: Put the prompt before the answer.
        logprobs: Alternatives to show beside each token.
    """

    prompt: str | list[str | int | list[int]]
    max_tokens: Annotated[int, Meta(ge=0)] | None = None
    echo: bool | None = None
    logprobs: Annotated[int, stated(minimum=0, maximum=20)] | None = None


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One answer."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None
    stop_reason: str | int | None
    prompt_token_ids: list[int] | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class CompletionResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str | None
    choices: list[CompletionChoice]
    usage: Usage


class CompletionChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What a chunk adds; absent fields were not asked for or come at the end."""

    index: int
    text: str
    logprobs: CompletionLogprobs | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET
    finish_reason: str | None
    stop_reason: str | int | UnsetType | None = UNSET


class CompletionChunk(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a stream."""

    id: str
    object: str
    created: int
    model: str
    choices: list[CompletionChunkChoice]
    usage: Usage | UnsetType = UNSET
