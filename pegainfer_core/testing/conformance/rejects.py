"""Level 1: what an engine must refuse, and with which reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec

from pegainfer_core.contract import (
    ContextLength,
    EmptyPrompt,
    EngineCapabilities,
    InvalidParam,
    InvalidToken,
    SamplingParams,
    StructuredOutput,
    UnknownLora,
    Unsupported,
)
from pegainfer_core.testing.conformance.session import greedy
from pegainfer_core.testing.conformance.subject import Subject

if TYPE_CHECKING:
    from pegainfer_core.testing.conformance.bench import Bench
    from pegainfer_core.testing.conformance.session import Session


class RejectsConformance(Subject):
    """Honour or refuse: typed reasons, and no harm to anybody else."""

    level: ClassVar[str] = "L1"

    def test_an_empty_prompt_is_refused(self, bench: Bench) -> None:
        """With EmptyPrompt."""
        assert bench.session().generate([], greedy(1)).rejected == EmptyPrompt()

    def test_ids_outside_the_vocabulary_are_refused(self, bench: Bench) -> None:
        """With InvalidToken, naming the id."""
        session = bench.session()
        vocab_size = session.handle.info.vocab_size
        for token_id in (vocab_size, vocab_size + 100, -1):
            reason = session.generate([0, token_id, 0], greedy(1)).rejected
            assert reason == InvalidToken(token_id=token_id, vocab_size=vocab_size)

    def test_too_long_requests_are_refused(self, bench: Bench) -> None:
        """With ContextLength, by one token, for the prompt alone and for prompt plus output."""
        session = bench.session()
        limit = session.handle.info.max_model_len
        for prompt_tokens, max_tokens in ((limit, 1), (10, limit - 9), (limit + 1, None)):
            reason = session.generate(session.prompt(prompt_tokens), greedy(max_tokens)).rejected
            assert isinstance(reason, ContextLength), f"{reason!r}"
            assert (reason.prompt_tokens, reason.limit_tokens) == (prompt_tokens, limit)

    def test_parameters_out_of_range_are_refused(self, bench: Bench) -> None:
        """With InvalidParam, naming the field."""
        session = bench.session()
        for field, value in (("temperature", -1.0), ("top_p", 1.5), ("max_tokens", -1)):
            params = msgspec.structs.replace(greedy(4), **{field: value})
            reason = session.generate([0], params).rejected
            assert isinstance(reason, InvalidParam), f"{field}={value}: {reason!r}"
            assert reason.field == field

    def test_what_is_not_honoured_is_refused(self, bench: Bench) -> None:
        """With Unsupported, for every capability that the family lacks."""
        session = bench.session()
        lacking = [
            field.name
            for field in msgspec.structs.fields(EngineCapabilities)
            if not getattr(self.requirements, field.name)
        ]
        for capability in lacking:
            for request_id in _uses(session, capability):
                reason = session.answer(request_id).rejected
                expected = UnknownLora if capability == "lora" else Unsupported
                assert isinstance(reason, Unsupported | expected), f"{capability}: {reason!r}"

    def test_a_refusal_disturbs_nobody(self, bench: Bench) -> None:
        """Requests beside refused ones answer as ever, and nothing is left behind."""
        session = bench.session()
        prompt = session.prompt(20)
        expected = session.generate(prompt, greedy(12)).token_ids
        beside = session.submit(prompt, greedy(12))
        for bad in ([], [-1]):
            session.submit(bad, greedy(1))
        assert session.answer(beside).token_ids == expected
        session.settle()


def _uses(session: Session, capability: str) -> list[int]:
    """Submit requests that need a capability."""
    params: dict[str, list[SamplingParams]] = {
        "sampling": [SamplingParams(temperature=0.7, max_tokens=2)],
        "seed": [greedy(2, seed=1)],
        "penalties": [
            greedy(2, **{name: 1.5})
            for name in ("repetition_penalty", "presence_penalty", "frequency_penalty")
        ],
        "logit_bias": [greedy(2, logit_bias={1: 5.0})],
        "token_masks": [greedy(2, allowed_token_ids=[1]), greedy(2, bad_token_sequences=[[1]])],
        "min_tokens": [greedy(2, min_tokens=1)],
        "logprobs": [greedy(2, logprobs=0)],
        "prompt_logprobs": [greedy(2, prompt_logprobs=0)],
        "structured": [greedy(2, structured=StructuredOutput(kind="regex", text="a"))],
    }
    prompt = session.prompt(4)
    if capability == "priority":
        return [session.submit(prompt, greedy(2), priority=1)]
    if capability == "lora":
        return [session.submit(prompt, greedy(2), lora="conformance")]
    if capability == "kv_transfer":
        return [session.submit(prompt, greedy(2), kv_transfer_params={"to": "nowhere"})]
    # A cache changes no answer: whoever lacks one has nothing to refuse.
    return [session.submit(prompt, p) for p in params.get(capability, [])]
