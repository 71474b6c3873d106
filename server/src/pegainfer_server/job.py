"""A request after everything about it has been decided: how to generate and how to show it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

import msgspec

from pegainfer_core.contract import SamplingParams
from pegainfer_server.parsing import Parsing

if TYPE_CHECKING:
    from pegainfer_server.protocol.sampling_fields import SamplingFields


class Echo(msgspec.Struct, frozen=True, kw_only=True):
    """The prompt as the beginning of the answer; offsets are those of its tokens."""

    text: str
    text_offsets: tuple[int, ...]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence to generate and how to show it: one choice of an answer.

    Attributes:
        endpoint: Path of the route.
        request_id: Public id, without the endpoint's prefix.
        model: Name in the answer.
        created: Seconds since the epoch.
        prompt_token_ids: What the engine gets.
        prompt_param: Field that the prompt came from.
        renames: Engine field names to the names clients use.
        params: Sampling parameters.
        stop: Stop strings.
        include_stop: Show the stop string or the client's stop token.
        skip_special_tokens: Hide special tokens.
        cache_salt: Keeps prefix-cache pages apart.
        priority: Lower runs first.
        stream: Answer token by token.
        include_usage: End a stream with a usage chunk.
        continuous_usage: Put the usage so far in every chunk.
        return_token_ids: Show ids.
        tokens_as_ids: Name tokens in log-probabilities by id.
        logprobs: Alternatives to show, None for no log-probabilities.
        prompt_logprobs: The same for prompt tokens.
        echo: The prompt, when it is to be shown.
        parsing: How the answer is taken apart, None when all of it is content.
        index: Place among the answer's choices.
        sample_index: Place among the samples of its prompt.
    """

    endpoint: str
    request_id: str
    model: str
    created: int
    prompt_token_ids: list[int]
    prompt_param: str
    renames: dict[str, str]
    params: SamplingParams
    stop: list[str] = []
    include_stop: bool = False
    skip_special_tokens: bool = True
    cache_salt: str = ""
    priority: int = 0
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    return_token_ids: bool = False
    tokens_as_ids: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    echo: Echo | None = None
    parsing: Parsing | None = None
    index: int = 0
    sample_index: int = 0

    @classmethod
    def of(
        cls,
        data: SamplingFields,
        *,
        endpoint: str,
        request_id: str,
        model: str,
        prompt_token_ids: list[int],
        prompt_param: str,
        renames: dict[str, str],
        params: SamplingParams,
        echo: Echo | None = None,
        parsing: Parsing | None = None,
    ) -> Self:
        """Add what the request says about showing the answer."""
        return cls(
            endpoint=endpoint,
            request_id=request_id,
            model=model,
            created=int(time.time()),
            prompt_token_ids=prompt_token_ids,
            prompt_param=prompt_param,
            renames=renames,
            params=params,
            stop=data.stop_strings,
            include_stop=bool(data.include_stop_str_in_output),
            skip_special_tokens=data.skip_special_tokens is not False,
            cache_salt=data.cache_salt or "",
            priority=data.priority or 0,
            stream=bool(data.stream),
            include_usage=data.include_usage,
            continuous_usage=data.continuous_usage,
            return_token_ids=bool(data.return_token_ids),
            tokens_as_ids=bool(data.return_tokens_as_token_ids),
            logprobs=params.logprobs,
            prompt_logprobs=data.prompt_logprobs,
            echo=echo,
            parsing=parsing,
        )

    def samples(self, count: int) -> list[Self]:
        """So many jobs like this one, which differ in their draws only."""
        first = self.index * count
        return [
            msgspec.structs.replace(self, index=first + number, sample_index=number)
            for number in range(count)
        ]

    @property
    def detailed(self) -> bool:
        """Whether chunks carry more than text."""
        return self.logprobs is not None or self.return_token_ids or self.continuous_usage
