"""From frames to streams: what asyncio code uses to talk to an engine, whatever the transport."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from typing import TYPE_CHECKING

from pegainfer_core.contract import (
    TERMINAL_EVENTS,
    AdapterEngine,
    AdapterError,
    AdapterProblem,
    EngineError,
    Error,
    Finished,
    FinishReason,
    GenerateRequest,
    PromptTokens,
    SamplingParams,
    Scheduled,
)
from pegainfer_core.engine.request_stream import RequestStream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.contract import (
        AdapterInfo,
        EngineHandle,
        EngineHealth,
        EngineInfo,
        EngineMetrics,
        StepFrame,
    )


class EngineClient:
    """Submits requests to a handle and routes its frames to their streams.

    Belongs to the event loop that was running when it was made; the handle's thread only appends
    frames and wakes that loop, so one step costs one wake-up however many rows it has.

    Attributes:
        num_slow_readers: Requests aborted because their reader did not read.
    """

    def __init__(self, handle: EngineHandle) -> None:
        self.num_slow_readers = 0
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._ids = itertools.count(1)
        self._streams: dict[int, RequestStream] = {}
        # Samples that wait for the first of their prompt, by its id and their own.
        self._held: dict[int, dict[int, GenerateRequest]] = {}
        self._frames: deque[StepFrame] = deque()
        self._scheduled = False
        handle.connect(self._receive)

    @property
    def info(self) -> EngineInfo:
        """Facts about the engine."""
        return self._handle.info

    @property
    def num_open(self) -> int:
        """Requests without a terminal."""
        return len(self._streams)

    def submit(
        self,
        prompt_token_ids: Sequence[int],
        params: SamplingParams,
        *,
        eos_token_ids: Sequence[int] = (),
        sample_index: int = 0,
        priority: int = 0,
        cache_salt: str = "",
        external_id: str = "",
        after: RequestStream | None = None,
        lora: str | None = None,
    ) -> RequestStream:
        """Queue a request and return its stream; fields as in `GenerateRequest`.

        `after` is a request with the same prompt. Where pages of it can be shared, this one goes to
        the engine once that one has a token or has ended, and computes none of them again.

        Raises:
            EngineError: The engine is dead.
        """
        stream = RequestStream(next(self._ids), self)
        self._streams[stream.request_id] = stream
        request = GenerateRequest(
            request_id=stream.request_id,
            prompt_token_ids=list(prompt_token_ids),
            params=params,
            eos_token_ids=list(eos_token_ids),
            sample_index=sample_index,
            priority=priority,
            cache_salt=cache_salt,
            external_id=external_id,
            lora=lora,
            arrival_s=time.monotonic(),
        )
        if after is not None and after.request_id in self._streams and self._shares(request):
            self._held.setdefault(after.request_id, {})[stream.request_id] = request
            return stream
        try:
            self._handle.submit(request)
        except BaseException:
            del self._streams[stream.request_id]
            raise
        return stream

    def abort(self, request_id: int) -> None:
        """Ask to end a request; unknown and ended ids are ignored."""
        if request_id in self._streams and not self._drop_held(request_id):
            self._handle.abort(request_id)

    def metrics(self) -> EngineMetrics:
        """The newest metrics snapshot."""
        return self._handle.metrics()

    def adapters(self) -> list[AdapterInfo]:
        """Adapters loaded now, by name; none for engines that take none."""
        handle = self._handle
        return handle.adapters() if isinstance(handle, AdapterEngine) else []

    async def load_adapter(self, name: str, path: str, *, replace: bool = False) -> AdapterInfo:
        """Load an adapter; see `AdapterEngine.load_adapter`.

        Raises:
            AdapterError: It cannot be loaded.
            EngineError: The engine is dead.
        """
        change = self._adapter_engine().load_adapter(name, path, replace=replace)
        return await asyncio.wrap_future(change)

    async def unload_adapter(self, name: str) -> AdapterInfo:
        """Take an adapter out; see `AdapterEngine.unload_adapter`.

        Raises:
            AdapterError: It cannot be taken out.
            EngineError: The engine is dead.
        """
        return await asyncio.wrap_future(self._adapter_engine().unload_adapter(name))

    def _adapter_engine(self) -> AdapterEngine:
        if not isinstance(self._handle, AdapterEngine):
            raise AdapterError(AdapterProblem.INVALID, "this engine takes no LoRA adapters")
        return self._handle

    def health(self) -> EngineHealth:
        """Whether the engine lives and steps."""
        return self._handle.health()

    def reset_prefix_cache(self, *, device_only: bool = False) -> None:
        """Drop cached KV pages that no live request uses."""
        self._handle.reset_prefix_cache(device_only=device_only)

    async def close(self) -> None:
        """Close the handle; open streams get their terminals first."""
        await asyncio.to_thread(self._handle.close)
        self._dispatch()

    def _receive(self, frame: StepFrame) -> None:
        """Engine thread: queue a frame and wake the loop unless it is awake already."""
        self._frames.append(frame)
        if not self._scheduled:
            self._scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._dispatch)
            except RuntimeError:
                pass  # The loop is closed: nobody is left to read.

    def _dispatch(self) -> None:
        # Cleared before reading: a frame queued from now on schedules its own dispatch.
        self._scheduled = False
        frames = self._frames
        streams = self._streams
        while frames:
            for event in frames.popleft().events:
                stream = streams.get(event.request_id)
                if stream is None:
                    continue
                if isinstance(event, TERMINAL_EVENTS):
                    del streams[event.request_id]
                stream.push(event)
                if self._held and not isinstance(event, Scheduled | PromptTokens):
                    self._release(event.request_id)

    def _shares(self, request: GenerateRequest) -> bool:
        """Whether a full page of its prompt can come from the prefix cache."""
        info = self.info
        scored = request.params.prompt_logprobs is not None
        long_enough = len(request.prompt_token_ids) > info.page_tokens
        return long_enough and info.capabilities.prefix_cache and not scored

    def _release(self, request_id: int) -> None:
        """Hand over those that waited for a request."""
        for follower_id, request in self._held.pop(request_id, {}).items():
            try:
                self._handle.submit(request)
            except EngineError as error:
                num_prompt = len(request.prompt_token_ids)
                self._streams.pop(follower_id).push(Error(follower_id, str(error), num_prompt, 0))

    def _drop_held(self, request_id: int) -> bool:
        """End a request that the engine has not seen; False when it has."""
        for followers in self._held.values():
            request = followers.pop(request_id, None)
            if request is not None:
                num_prompt = len(request.prompt_token_ids)
                ending = Finished(request_id, FinishReason.ABORT, num_prompt, 0)
                self._streams.pop(request_id).push(ending)
                return True
        return False
