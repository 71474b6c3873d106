"""Answers of several choices: samples of a prompt, or one for each of several prompts.

They are generated side by side, and one that fails ends all.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pegainfer_server.answer.reply import BytesReply, Reply, StreamReply, watched
from pegainfer_server.protocol.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litestar.types import Receive, Scope, Send

    from pegainfer_core.text import Tokenizer
    from pegainfer_server.answer.chunks import ChunkEncoder
    from pegainfer_server.answer.stream_keeper import StreamKeeper
    from pegainfer_server.generation import Ending, Generation, Piece


_THREAD_SCORES = 512


class Choice(NamedTuple):
    """A generation that has ended."""

    generation: Generation
    pieces: Sequence[Piece]
    ending: Ending


class ChoicesEncoder(Protocol):
    """Encodes the body of a response that is not streamed."""

    def __call__(self, choices: Sequence[Choice], tokenizer: Tokenizer) -> bytes:
        """All choices, in order, as JSON."""
        ...


class ChoicesReply(Reply):
    """Choices that are sent when all are complete."""

    def __init__(
        self, generations: Sequence[Generation], tokenizer: Tokenizer, encode: ChoicesEncoder
    ) -> None:
        self._generations = generations
        self._tokenizer = tokenizer
        self._encode = encode

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Collect the choices and send them.

        Raises:
            ApiError: The engine refused or lost one of them.
        """
        generations = self._generations
        with watched(receive, *generations):
            if len(generations) == 1:
                choices = [await _collect(generations[0])]
            else:
                choices = await _collect_all(generations)
        if not generations[0].abandoned:
            await BytesReply(await self._body(choices))(scope, receive, send)

    async def _body(self, choices: Sequence[Choice]) -> bytes:
        """Many scores become JSON on a thread, where they hold up no streams."""
        num_scores = sum(len(piece.logprobs or ()) for each in choices for piece in each.pieces)
        num_scores += sum(len(each.generation.prompt_logprobs or ()) for each in choices)
        if num_scores < _THREAD_SCORES:
            return self._encode(choices, self._tokenizer)
        return await asyncio.to_thread(self._encode, choices, self._tokenizer)


class ChoicesStreamReply(StreamReply):
    """Choices whose events come as they are made, each with its index."""

    def __init__(
        self,
        generations: Sequence[Generation],
        chunks: Sequence[ChunkEncoder],
        keeper: StreamKeeper,
    ) -> None:
        super().__init__(generations[0], chunks[0], keeper)
        self._generations = generations
        self._encoders = chunks
        self._waiting: dict[asyncio.Task[list[Piece]], int] = {}
        self._idle = list(range(len(generations)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream the choices.

        Raises:
            ApiError: The engine refused one of them before anything was sent.
        """
        try:
            await super().__call__(scope, receive, send)
        finally:
            for task in self._waiting:
                # Some may have failed too; the first failure was told.
                task.add_done_callback(_hear)
                task.cancel()

    @property
    def generations(self) -> Sequence[Generation]:
        """What makes the answer."""
        return self._generations

    @property
    def usage(self) -> Usage:
        """Tokens of all choices so far."""
        return total_usage(self._generations)

    @property
    def ended(self) -> bool:
        """Whether every choice has ended."""
        return not self._waiting and not self._idle

    def opening(self) -> bytes:
        """Events before any text, of each choice."""
        return b"".join(chunks.opening() for chunks in self._encoders)

    async def next_events(self) -> bytes:
        """Wait until any choice has something to say."""
        for index in self._idle:
            task = asyncio.ensure_future(self._generations[index].next_pieces())
            self._waiting[task] = index
        self._idle = []
        done, _ = await asyncio.wait(self._waiting, return_when=asyncio.FIRST_COMPLETED)
        body = b""
        for task in sorted(done, key=self._waiting.__getitem__):
            pieces = task.result()
            index = self._waiting.pop(task)
            generation = self._generations[index]
            body += self._encoders[index].pieces(pieces, generation)
            if generation.ending is None:
                self._idle.append(index)
        return body


def stream_reply(
    generations: Sequence[Generation], chunks: Sequence[ChunkEncoder], keeper: StreamKeeper
) -> StreamReply:
    """The stream of one choice or of several; `chunks` are parallel to `generations`."""
    if len(generations) == 1:
        return StreamReply(generations[0], chunks[0], keeper)
    return ChoicesStreamReply(generations, chunks, keeper)


def total_usage(generations: Sequence[Generation]) -> Usage:
    """Tokens of one request; a prompt counts once however many samples it has."""
    parts = [generation.usage for generation in generations]
    prompts = [
        part
        for part, generation in zip(parts, generations, strict=True)
        if not generation.job.sample_index
    ]
    reasoning = [part.num_reasoning_tokens for part in parts]
    return Usage.of(
        sum(part.prompt_tokens for part in prompts),
        sum(part.completion_tokens for part in parts),
        sum(part.prompt_tokens_details.cached_tokens for part in prompts),
        None if None in reasoning else sum(count or 0 for count in reasoning),
    )


def _hear(task: asyncio.Task[list[Piece]]) -> None:
    """Take notice of an exception that nobody asks for."""
    if not task.cancelled():
        task.exception()


async def _collect(generation: Generation) -> Choice:
    pieces: list[Piece] = []
    while generation.ending is None:
        pieces += await generation.next_pieces()
    return Choice(generation, pieces, generation.ending)


async def _collect_all(generations: Sequence[Generation]) -> list[Choice]:
    tasks = [asyncio.ensure_future(_collect(generation)) for generation in generations]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
