"""Runs a batch of jobs on an engine, in the event loop its client belongs to."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from pegainfer_core.contract import EngineError
from pegainfer_core.llm.answer import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pegainfer_core.engine import EngineClient, RequestStream
    from pegainfer_core.llm.answer import TextSettings
    from pegainfer_core.llm.job import Job
    from pegainfer_core.text import ModelText


class OnEnd(Protocol):
    """Whoever wants to know of ended requests. Must not raise."""

    def __call__(self, answer: Answer, request_id: int | None) -> None:
        """Take an ended request; its id is None when it never reached the engine."""


async def run_batch(
    client: EngineClient,
    text: ModelText,
    jobs: Sequence[Job],
    settings: TextSettings,
    on_end: OnEnd,
    lora: str | None = None,
) -> list[Answer]:
    """Answer every job; a job that fails says so in its answer and stops no other.

    Jobs are submitted in order. Twice as many as the engine runs at once are with it at any time:
    enough that it never starves, and few enough that a long batch does not sit in its queue.
    Cancelling aborts what runs.

    Args:
        client: The engine's.
        text: The model's text side.
        jobs: What to run.
        settings: How answers become text.
        on_end: Called for each job.
        lora: Adapter of all of them.

    Returns:
        Ended answers in the jobs' order.
    """
    answers = [Answer(job, text.tokenizer, text.end_token_ids, settings) for job in jobs]
    work = iter(zip(jobs, answers, strict=True))
    pending = _Pending(client, sorted(text.end_token_ids), work, lora)
    num_workers = min(2 * client.info.max_num_seqs, len(jobs))
    async with asyncio.TaskGroup() as group:
        for _ in range(num_workers):
            group.create_task(_work(pending, on_end))
    return answers


class _Pending:
    """Jobs that no worker has taken yet."""

    def __init__(
        self,
        client: EngineClient,
        end_ids: list[int],
        jobs: Iterator[tuple[Job, Answer]],
        lora: str | None,
    ) -> None:
        self.jobs = jobs
        self._lora = lora
        self._client = client
        self._end_ids = end_ids
        self._first: RequestStream | None = None

    def submit(self, job: Job) -> RequestStream:
        """Submit a job that was just taken: later samples come behind the first of their prompt.

        Raises:
            EngineError: The engine is dead.
        """
        if not job.sample_index:
            self._first = None
        stream = self._client.submit(
            job.prompt.token_ids,
            job.params,
            eos_token_ids=self._end_ids,
            sample_index=job.sample_index,
            after=self._first,
            lora=self._lora,
        )
        self._first = self._first or stream
        return stream


async def _work(pending: _Pending, on_end: OnEnd) -> None:
    for job, answer in pending.jobs:
        try:
            stream = pending.submit(job)
        except EngineError as error:
            answer.fail(str(error))
            on_end(answer, None)
            continue
        try:
            while not answer.finish_reason:
                for event in await stream.next_events():
                    answer.take(event)
        finally:
            # A stop string, or a cancelled batch; harmless when the engine has ended it itself.
            stream.abort()
            on_end(answer, stream.request_id)
