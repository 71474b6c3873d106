"""Request fields that endpoints share. What they mean is resolved elsewhere."""

from typing import Annotated

import msgspec
from msgspec import Meta

from pegainfer_server.protocol.structured import JsonSchema, ResponseFormat, StructuredOutputs

MAX_STOP_STRINGS = 16
MAX_CHOICES = 256
"""Most answers to one request: samples of all its prompts."""


def stated(**limits: int) -> Meta:
    """Limits that `/schema` states and that are checked later, where their names are better."""
    return Meta(extra_json_schema=limits)


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream carries beside the answer.

    Attributes:
        include_usage: Send one chunk with the usage after the last choice.
        continuous_usage_stats: With `include_usage`, put the usage so far in every chunk.
    """

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class GenerationFields(msgspec.Struct, frozen=True, kw_only=True):
    """What every endpoint that generates takes, under the same names.

    Null means absent for every field; ranges are checked with the sampling parameters.
    """

    model: str | None = None
    temperature: Annotated[float, stated(minimum=0)] | None = None
    top_p: Annotated[float, stated(minimum=0, maximum=1)] | None = None
    top_k: Annotated[int, stated(minimum=-1)] | None = None
    min_p: Annotated[float, stated(minimum=0, maximum=1)] | None = None
    seed: int | None = None
    presence_penalty: Annotated[float, stated(minimum=-2, maximum=2)] | None = None
    frequency_penalty: Annotated[float, stated(minimum=-2, maximum=2)] | None = None
    repetition_penalty: Annotated[float, stated(exclusiveMinimum=0)] | None = None
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: Annotated[list[int], stated(minItems=1)] | None = None
    bad_words: Annotated[list[str], stated(maxItems=1024)] | None = None
    stop_token_ids: Annotated[list[int], stated(maxItems=4096)] | None = None
    ignore_eos: bool | None = None
    min_tokens: Annotated[int, stated(minimum=0)] | None = None
    stream: bool | None = None
    skip_special_tokens: bool | None = None
    request_id: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    cache_salt: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    priority: int | None = None
    user: str | None = None


class SamplingFields(GenerationFields, frozen=True, kw_only=True):
    """What completions and chats take.

    Attributes:
        response_format: OpenAI's way to say which form the answer must have.
        structured_outputs: More such forms.
        guided_json: Another name of `structured_outputs.json`, as are those below of others.
    """

    stop: str | list[str] | None = None
    include_stop_str_in_output: bool | None = None
    n: Annotated[int, Meta(ge=1, extra_json_schema={"maximum": MAX_CHOICES})] | None = None
    best_of: Annotated[int, Meta(ge=1)] | None = None
    prompt_logprobs: Annotated[int, stated(minimum=0, maximum=20)] | None = None
    stream_options: StreamOptions | None = None
    add_special_tokens: bool | None = None
    truncate_prompt_tokens: Annotated[int, Meta(ge=-1)] | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: JsonSchema | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None

    @property
    def stop_strings(self) -> list[str]:
        """`stop` as a list."""
        if self.stop is None:
            return []
        return [self.stop] if isinstance(self.stop, str) else self.stop

    @property
    def num_samples(self) -> int:
        """Answers to each prompt."""
        return self.n or 1

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def continuous_usage(self) -> bool:
        """Whether every chunk carries the usage so far."""
        options = self.stream_options
        return self.include_usage and options is not None and bool(options.continuous_usage_stats)
