"""How one request wants its tokens chosen. Knows ids and numbers, not text."""

from __future__ import annotations

import math
from numbers import Integral, Real

import msgspec

from pegainfer_core.contract.structured_output import StructuredOutput

GREEDY_TEMPERATURE = 1e-5
"""Temperatures below this choose the argmax (lowest id on ties)."""

MAX_LOGIT_BIAS_ENTRIES = 4096
MAX_BAD_SEQUENCES = 4096
MAX_SEED = 2**64 - 1


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sampling controls of one request, all optional.

    Attributes:
        max_tokens: Most tokens to generate; None fills the context window.
        min_tokens: End and stop tokens are masked until this many tokens were generated.
        temperature: 0 is greedy. Logits are divided by it before any filter.
        top_k: Keep the k most likely tokens; 0 and -1 switch the filter off.
        top_p: Keep the smallest set whose mass reaches p, after top_k renormalised.
        min_p: Drop tokens less likely than min_p times the most likely one.
        seed: Makes the draws a pure function of (seed, sample index, position, logits).
        repetition_penalty: Divides positive, multiplies negative logits of prompt and output ids.
        presence_penalty: Subtracted once from the logits of generated ids.
        frequency_penalty: Subtracted per occurrence from the logits of generated ids.
        logit_bias: Added to the logits of the given ids.
        allowed_token_ids: When given, every other id is masked.
        bad_token_sequences: Sequences that may not appear: the last id is masked while the ids
            before it end the generated text.
        stop_token_ids: The client's own end ids; they stay active with `ignore_eos`.
        ignore_eos: The model's end ids neither end the answer nor are hidden.
        logprobs: None for none, else the number of top alternatives beside the chosen token.
        prompt_logprobs: The same for every prompt token after the first.
        structured: The form that the answer must have.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = {}
    allowed_token_ids: list[int] | None = None
    bad_token_sequences: list[list[int]] = []
    stop_token_ids: list[int] = []
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    structured: StructuredOutput | None = None

    @property
    def greedy(self) -> bool:
        """Whether the choice is the argmax whatever the filters say."""
        return self.temperature < GREEDY_TEMPERATURE or self.top_k == 1

    def validate(self, vocab_size: int, max_logprobs: int = 20) -> None:
        """Check every field against its range.

        Args:
            vocab_size: Rows of the embedding; ids must be below it.
            max_logprobs: Largest `logprobs` and `prompt_logprobs` accepted.

        Raises:
            ParamError: Naming the first field that is out of range and its value.
        """
        self._check_types()
        self._check_numbers()
        self._check_counts(max_logprobs)
        self._check_ids(vocab_size)
        problem = None if self.structured is None else self.structured.problem(vocab_size)
        if problem is not None:
            raise ParamError("structured", problem)

    def _check_types(self) -> None:
        """A Struct made in Python holds whatever it was given."""
        for name in _INTEGERS:
            value = getattr(self, name)
            if value is None and name in _OPTIONAL:
                continue
            if isinstance(value, bool) or not isinstance(value, Integral):
                raise ParamError(name, f"must be an integer, not {value!r}")
        for name, _, _ in _RANGES:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real):
                raise ParamError(name, f"must be a number, not {value!r}")
        if not isinstance(self.ignore_eos, bool):
            raise ParamError("ignore_eos", f"must be true or false, not {self.ignore_eos!r:.60}")
        self._check_collections()

    def _check_collections(self) -> None:
        if not isinstance(self.logit_bias, dict):
            raise ParamError("logit_bias", f"must map token ids, not {self.logit_bias!r:.60}")
        biases: list[object] = list(self.logit_bias.values())
        for bias in biases:
            if isinstance(bias, bool) or not isinstance(bias, Real):
                raise ParamError("logit_bias", f"holds {bias!r:.60}, which is no number")
        if not isinstance(self.bad_token_sequences, list | tuple):
            raise ParamError("bad_token_sequences", "must be a list of lists of token ids")
        _check_id_types("logit_bias", list(self.logit_bias))
        _check_id_types("stop_token_ids", self.stop_token_ids)
        if self.allowed_token_ids is not None:
            _check_id_types("allowed_token_ids", self.allowed_token_ids)
        for sequence in self.bad_token_sequences:
            _check_id_types("bad_token_sequences", sequence)

    def _check_numbers(self) -> None:
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if not (math.isfinite(value) and low <= value <= high):
                raise ParamError(name, f"must be a number from {low:g} to {high:g}, not {value!r}")
        if self.repetition_penalty <= 0:
            raise ParamError("repetition_penalty", "must be greater than 0")
        if self.seed is not None and not -(2**63) <= self.seed <= MAX_SEED:
            raise ParamError("seed", f"must fit 64 bits, not {self.seed}")

    def _check_counts(self, max_logprobs: int) -> None:
        if self.max_tokens is not None and self.max_tokens < 0:
            raise ParamError("max_tokens", f"must be at least 0, not {self.max_tokens}")
        if self.min_tokens < 0:
            raise ParamError("min_tokens", f"must be at least 0, not {self.min_tokens}")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ParamError(
                "min_tokens", f"{self.min_tokens} is more than max_tokens {self.max_tokens}"
            )
        if self.top_k < -1:
            raise ParamError("top_k", f"must be -1, 0 (both: off) or more, not {self.top_k}")
        for name in ("logprobs", "prompt_logprobs"):
            count = getattr(self, name)
            if count is not None and not 0 <= count <= max_logprobs:
                raise ParamError(name, f"must be from 0 to {max_logprobs}, not {count}")

    def _check_ids(self, vocab_size: int) -> None:
        if len(self.logit_bias) > MAX_LOGIT_BIAS_ENTRIES:
            raise ParamError(
                "logit_bias",
                f"has {len(self.logit_bias)} entries, at most {MAX_LOGIT_BIAS_ENTRIES} are allowed",
            )
        for token_id, bias in self.logit_bias.items():
            if not (math.isfinite(bias) and -100 <= bias <= 100):
                raise ParamError("logit_bias", f"of {token_id} must be -100 to 100, not {bias!r}")
        if self.allowed_token_ids is not None and not self.allowed_token_ids:
            raise ParamError("allowed_token_ids", "must not be empty; leave it out to allow all")
        if len(self.bad_token_sequences) > MAX_BAD_SEQUENCES:
            count = len(self.bad_token_sequences)
            problem = f"has {count} entries, at most {MAX_BAD_SEQUENCES} are allowed"
            raise ParamError("bad_token_sequences", problem)
        if any(not sequence for sequence in self.bad_token_sequences):
            raise ParamError("bad_token_sequences", "holds an empty sequence")
        ids = {
            "logit_bias": list(self.logit_bias),
            "allowed_token_ids": self.allowed_token_ids or [],
            "stop_token_ids": self.stop_token_ids,
            "bad_token_sequences": [i for seq in self.bad_token_sequences for i in seq],
        }
        for name, token_ids in ids.items():
            for token_id in token_ids:
                if not 0 <= token_id < vocab_size:
                    raise ParamError(
                        name, f"token id {token_id} is outside the vocabulary of {vocab_size}"
                    )


_INTEGERS = ("max_tokens", "min_tokens", "top_k", "seed", "logprobs", "prompt_logprobs")

_OPTIONAL = ("max_tokens", "seed", "logprobs", "prompt_logprobs")

_RANGES = (
    ("temperature", 0.0, 1e6),
    ("top_p", 0.0, 1.0),
    ("min_p", 0.0, 1.0),
    ("repetition_penalty", 0.0, 1e6),
    ("presence_penalty", -2.0, 2.0),
    ("frequency_penalty", -2.0, 2.0),
)


def _check_id_types(name: str, token_ids: object) -> None:
    if not isinstance(token_ids, list | tuple):
        raise ParamError(name, f"must hold lists of token ids, not {token_ids!r:.60}")
    if set(map(type, token_ids)) <= {int}:
        return
    for token_id in token_ids:
        if isinstance(token_id, bool) or not isinstance(token_id, Integral):
            raise ParamError(name, f"holds {token_id!r:.60}, which is no token id")


class ParamError(ValueError):
    """A sampling field is out of range.

    Attributes:
        field: Name of the field.
        problem: What is wrong with it, as a clause without the name.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}")
        self.field = field
        self.problem = problem
