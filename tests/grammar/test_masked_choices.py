"""Answers held to grammars beside others, launched ahead as on a device, on the real runner.

The model is a table of numbers: what it chooses depends on the last token and its place alone, so
that every answer can be worked out without a scheduler.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pegainfer_qwen3.scheduler import Qwen3Scheduler

from pegainfer_core.backend import DType, KvLayout, KvPool, NumpyBackend, Tensor
from pegainfer_core.contract import (
    EngineCapabilities,
    Error,
    Finished,
    FinishReason,
    GenerateRequest,
    Rejected,
    SamplingParams,
    ServePlan,
    StructuredOutput,
    TokenEvent,
    Tokens,
)
from pegainfer_core.engine import DecoderRunner, Ledger
from pegainfer_core.engine.driver import Driver
from pegainfer_core.engine.heartbeat import Heartbeat
from pegainfer_core.grammar import GrammarDesk
from pegainfer_core.kv import KvManager
from pegainfer_core.sampling import DeviceStepSampler, Sampler
from tests.grammar.grammars import EOS, TIMEOUT_S, VOCAB, read
from tests.sampling.numpy_device import NumpyDevice, Results, Table

if TYPE_CHECKING:
    from pegainfer_core.backend import Batch
    from pegainfer_core.sampling.choice_device import DeviceTable

PAGE_TOKENS, SLOTS, CONTEXT = 16, 4, 128
FORMS = [
    None,
    StructuredOutput(kind="choice", text='["yes", "no", "never"]'),
    StructuredOutput(kind="regex", text="[a-f]{3,9}(-[0-9]{2})?"),
    StructuredOutput(
        kind="json_schema",
        text='{"type":"object","properties":{"a":{"type":"boolean"},"b":{"enum":[1,"x"]}},'
        '"required":["a","b"],"additionalProperties":false}',
    ),
]


def logits_after(token_id: int, position: int) -> np.ndarray:
    rng = np.random.default_rng((token_id, position))
    return (rng.integers(-40, 40, VOCAB) / 4).astype(np.float32)


class TableModel:
    """Implements `DecoderModel`; reads ids that the host does not know where a device would."""

    def __init__(self, device: NumpyDevice) -> None:
        self._device = device
        self._rows = np.zeros((0, VOCAB), np.float32)

    def forward(self, batch: Batch, kv: KvPool) -> None:
        metadata = batch.metadata
        rows = []
        for token in metadata.logit_tokens[: metadata.num_samples].tolist():
            token_id = int(metadata.token_ids[token])
            known = token_id if token_id >= 0 else int(self._device.newest[-1 - token_id])
            rows.append(logits_after(known, int(metadata.positions[token])))
        self._rows = np.array(rows, np.float32).reshape(len(rows), VOCAB)

    def logits(self, batch: Batch, first: int, count: int) -> Tensor:
        return Tensor(self._rows.shape, DType.FLOAT32, self._rows)

    def freeze(self) -> None:
        pass


class Chooser(NumpyDevice):
    """Chooses for the rows of a batch.

    What was given back is there until it is taken again: a choice that was put off may use it.
    """

    def __init__(self) -> None:
        super().__init__(VOCAB, SLOTS)
        self._given: list[DeviceTable] = []

    def take(self, num_bytes: int) -> Table:
        for table in self._given:
            super().give(table)
        self._given.clear()
        return super().take(num_bytes)

    def give(self, table: DeviceTable) -> None:
        self._given.append(table)

    def choose(self, batch: Batch, logits: Tensor, *, draws: bool, full: bool) -> None:
        words = batch.metadata.choice_words
        rows = logits.storage
        assert isinstance(rows, np.ndarray)
        ids = [self.choose_greedily(word, row) for word, row in zip(words, rows, strict=False)]
        self.results = Results(np.array(ids, np.int32), np.zeros((0, 68), np.int32))


@dataclass
class Heard:
    token_ids: list[int] = field(default_factory=list)
    terminal: TokenEvent | None = None

    def take(self, event: TokenEvent) -> None:
        assert self.terminal is None
        if isinstance(event, Tokens):
            self.token_ids += event.token_ids
        elif isinstance(event, Finished | Error | Rejected):
            self.terminal = event


class Engine:
    """A driver over all this, stepped by the test."""

    def __init__(self, desk: GrammarDesk, num_pages: int = 64) -> None:
        device = Chooser()
        layout = KvLayout(
            num_layers=1, num_kv_heads=1, head_dim=8, page_tokens=PAGE_TOKENS, dtype=DType.FLOAT32
        )
        backend = NumpyBackend()
        plan = ServePlan(
            max_model_len=CONTEXT,
            vocab_size=VOCAB,
            backend="numpy",
            page_tokens=PAGE_TOKENS,
            num_pages=num_pages,
            max_num_seqs=SLOTS,
            max_prefill_tokens=16,
            capabilities=EngineCapabilities(structured=True),
        )
        sampler = DeviceStepSampler(device, 0)
        runner = DecoderRunner(
            TableModel(device), backend, backend.kv_pool(layout, num_pages), sampler, plan
        )
        kv = KvManager(num_pages + 1, PAGE_TOKENS)
        self.heard: dict[int, Heard] = {}
        scheduler = Qwen3Scheduler(runner, kv, plan, grammars=desk)
        # Requests start although those that run will need the pages: they preempt each other.
        scheduler._admission._soon_needed = lambda sequence: 0  # type: ignore[method-assign]
        scheduler._admission._headroom_tokens = 0
        self.scheduler = scheduler
        self.driver = Driver(scheduler, self._hear, Heartbeat(), desk)

    def _hear(self, frame: object) -> None:
        for event in frame.events:  # type: ignore[attr-defined]
            self.heard.setdefault(event.request_id, Heard()).take(event)

    def run(self, until: int) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        while sum(heard.terminal is not None for heard in self.heard.values()) < until:
            assert time.monotonic() < deadline_s, self.heard
            self.driver._turn()


def asked(
    request_id: int, form: StructuredOutput | None, prompt: list[int], **params: object
) -> GenerateRequest:
    settings_ = {"max_tokens": 24, "temperature": 0, **params}
    return GenerateRequest(
        request_id=request_id,
        prompt_token_ids=prompt,
        params=SamplingParams(structured=form, **settings_),
        eos_token_ids=[EOS],
    )


def alone(desk: GrammarDesk, request: GenerateRequest) -> tuple[list[int], FinishReason]:
    """The right answer, from the definition: token by token, with the sampler of the host."""
    from pegainfer_core.engine.sequence import Sequence

    sequence, host = Sequence(request, 1000), Sampler(VOCAB, 0)
    if request.params.structured is not None:
        sequence.grammar = read(desk, request)[1]
    for _ in range(request.params.max_tokens or 0):
        row = logits_after(sequence.token_ids[-1], len(sequence.token_ids) - 1)
        token_id = host.sample(row[None], [sequence])[0].token_id
        if sequence.grammar is not None and sequence.grammar.finished:
            return sequence.token_ids[sequence.num_prompt :], FinishReason.STOP
        if token_id in sequence.end_token_ids:
            return sequence.token_ids[sequence.num_prompt :], FinishReason.STOP
        sequence.token_ids.append(token_id)
        if sequence.grammar is not None:
            sequence.grammar.advance(token_id)
    return sequence.token_ids[sequence.num_prompt :], FinishReason.LENGTH


REQUESTS = st.tuples(
    st.sampled_from(FORMS),
    st.lists(st.integers(0, 255), min_size=1, max_size=40),
    st.fixed_dictionaries(
        {},
        optional={
            "frequency_penalty": st.just(0.7),
            "repetition_penalty": st.just(1.3),
            "logit_bias": st.just({ord("e"): 4.0}),
            "min_tokens": st.just(6),
            "ignore_eos": st.just(True),
            "bad_token_sequences": st.just([[ord("e"), ord("s")], [ord("x")]]),
        },
    ),
)


@given(requests=st.lists(REQUESTS, min_size=1, max_size=6), num_pages=st.sampled_from([64, 9]))
@settings(deadline=None, max_examples=8)
def test_each_answer_is_that_of_its_request_alone(
    desk: GrammarDesk, requests: list[tuple[object, ...]], num_pages: int
) -> None:
    """Whatever runs beside it, and through preemptions, which a small pool forces."""
    engine = Engine(desk, num_pages)
    made = [asked(i + 1, *given_[:2], **given_[2]) for i, given_ in enumerate(requests)]
    for request in made:
        engine.driver.inbox.put(_submit(request))
    engine.run(len(made))
    for request in made:
        heard = engine.heard[request.request_id]
        assert isinstance(heard.terminal, Finished)
        expected = alone(desk, request)
        assert (heard.token_ids, heard.terminal.reason) == expected


def test_preempted_answers_go_on_where_they_were(desk: GrammarDesk) -> None:
    engine = Engine(desk, num_pages=6)
    made = [asked(i, FORMS[2 + i % 2], [40 + i] * 29, ignore_eos=True) for i in range(1, 5)]
    # First, so that both forms are known and the requests run at once.
    expected = [alone(desk, request)[0] for request in made]
    for request in made:
        engine.driver.inbox.put(_submit(request))
    engine.run(len(made))
    assert engine.scheduler.metrics().num_preemptions
    assert [engine.heard[request.request_id].token_ids for request in made] == expected


def test_what_cannot_be_read_is_rejected_and_what_is_left_goes_on(desk: GrammarDesk) -> None:
    engine = Engine(desk)
    bad = StructuredOutput(kind="regex", text="(a")
    for request in (asked(1, bad, [1]), asked(2, FORMS[1], [2]), asked(3, None, [3])):
        engine.driver.inbox.put(_submit(request))
    engine.run(3)
    rejected = engine.heard[1].terminal
    assert isinstance(rejected, Rejected) and rejected.reason.field == "structured"
    assert bytes(engine.heard[2].token_ids).decode() in ("yes", "no", "never")
    assert isinstance(engine.heard[3].terminal, Finished)


def test_a_request_may_leave_while_its_grammar_is_read(
    desk: GrammarDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pegainfer_core.engine.command import Abort

    engine, gate = Engine(desk), threading.Event()
    follower = desk._follower

    def gated(request: GenerateRequest) -> object:
        gate.wait(20)
        return follower(request)

    monkeypatch.setattr(desk, "_follower", gated)
    engine.driver.inbox.put(_submit(asked(1, FORMS[1], [1])))
    engine.driver.inbox.put(_submit(asked(2, None, [1])))
    engine.run(1)  # The other one is not held up.
    engine.driver.inbox.put(Abort(1))
    engine.run(2)
    assert engine.heard[1].terminal == Finished(1, FinishReason.ABORT, 1, 0)
    gate.set()
    while not desk._read and engine.driver.inbox.empty():
        pass
    engine.driver._turn()
    assert not desk._read and not engine.scheduler.has_work()


def test_an_answer_whose_grammar_fails_is_the_clients_fault(desk: GrammarDesk) -> None:
    engine = Engine(desk)
    engine.driver.inbox.put(_submit(asked(1, FORMS[2], [1])))
    engine.driver.inbox.put(_submit(asked(2, None, [1, 2])))
    while not engine.heard.get(1, Heard()).token_ids:
        engine.driver._turn()
    (running,) = [s for s in engine.scheduler._requests.running if s.request_id == 1]
    assert running.grammar is not None
    running.grammar.error = "is too complex"
    engine.run(2)
    terminal = engine.heard[1].terminal
    assert isinstance(terminal, Error) and terminal.field == "structured"
    assert terminal.message == "structured is too complex"
    expected, _ = alone(desk, asked(2, None, [1, 2]))
    assert engine.heard[2].token_ids == expected


def test_aborted_in_the_middle_nothing_is_left(desk: GrammarDesk) -> None:
    from pegainfer_core.engine.command import Abort

    engine = Engine(desk)
    for number in range(1, 4):
        engine.driver.inbox.put(_submit(asked(number, FORMS[2], [number], ignore_eos=True)))
    while len([h for h in engine.heard.values() if h.token_ids]) < 3:
        engine.driver._turn()
    for number in range(1, 4):
        engine.driver.inbox.put(Abort(number))
    engine.run(3)
    while engine.scheduler.has_work():
        engine.driver._turn()
    metrics = engine.scheduler.metrics()
    assert (metrics.num_running, metrics.num_waiting, metrics.kv_used_pages) == (0, 0, 0)


def test_a_request_without_its_grammar_never_starts(desk: GrammarDesk) -> None:
    engine = Engine(desk)
    ledger = Ledger()
    request = asked(9, FORMS[1], [1])
    ledger.open(request)
    with pytest.raises(RuntimeError, match="never read"):
        engine.scheduler.submit(request, ledger)


def _submit(request: GenerateRequest) -> object:
    from pegainfer_core.engine.command import Submit

    return Submit(request)
