"""The seam between whoever has requests and whoever runs a model.

`EngineHandle` is implemented by two transports with the same semantics: in process and in a
separate engine process. It is frame level and thread safe; `pegainfer_core.engine.EngineClient`
turns its frames into one async stream of `TokenEvent` per request.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from pegainfer_core.contract.adapter import AdapterInfo
from pegainfer_core.contract.event import StepFrame

if TYPE_CHECKING:
    from pegainfer_core.contract.request import GenerateRequest

CONTRACT_VERSION = (1, 0)


class EngineCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine honours; a request that asks for more is refused, never served without."""

    sampling: bool = True
    seed: bool = True
    penalties: bool = True
    logit_bias: bool = True
    token_masks: bool = True
    min_tokens: bool = True
    logprobs: bool = True
    prompt_logprobs: bool = True
    prefix_cache: bool = True
    priority: bool = True
    lora: bool = False
    kv_transfer: bool = False
    structured: bool = False


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that do not change while an engine lives.

    Attributes:
        family: Id of the model family that runs.
        backend: "numpy", "cuda" or what the family calls its own.
        vocab_size: Rows of the embedding; token ids must be below it.
        max_model_len: Longest prompt plus output in tokens.
        page_tokens: Tokens in one KV page.
        num_pages: KV pages that requests can use.
        max_num_seqs: Most requests in one step.
        capabilities: Which request fields are honoured.
        pid: Process that runs the model.
        adapters: Those loaded at start.
    """

    family: str
    backend: str
    vocab_size: int
    max_model_len: int
    page_tokens: int
    num_pages: int
    max_num_seqs: int
    capabilities: EngineCapabilities = EngineCapabilities()
    pid: int = 0
    adapters: list[AdapterInfo] = []


class KvTierMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One tier of KV offload. Seconds are times during which such calls were under way.

    Attributes:
        name: As in `--kv-offload`.
        num_records: Pages held.
        used_bytes: Their size.
        capacity_bytes: Most bytes to hold; None without a limit.
        query_tokens: Prompt tokens looked up, because no tier before it held them.
        hit_tokens: Those of them that were restored from here.
        saved_bytes: Size of the pages it took.
        save_s: Time for that.
        loaded_bytes: Size of the pages it gave.
        load_s: Time for that.
        num_unsaved: Pages it was not given or did not take: no room, or too slow.
        num_evicted: Pages given up for others.
        num_corrupt: Pages that were not what they should be; none of them was used.
        num_failures: Calls that failed.
        num_timeouts: Calls that took too long.
        num_cut_off: How often it was cut off for a while because it kept failing.
        is_cut_off: Whether it is now.
        held_bytes: Buffers of calls that were given up and that it may still touch.
    """

    name: str
    num_records: int = 0
    used_bytes: int = 0
    capacity_bytes: int | None = None
    query_tokens: int = 0
    hit_tokens: int = 0
    saved_bytes: int = 0
    save_s: float = 0.0
    loaded_bytes: int = 0
    load_s: float = 0.0
    num_unsaved: int = 0
    num_evicted: int = 0
    num_corrupt: int = 0
    num_failures: int = 0
    num_timeouts: int = 0
    num_cut_off: int = 0
    is_cut_off: bool = False
    held_bytes: int = 0


class KvOffloadMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """KV offload as a whole.

    Attributes:
        num_restores: Prefixes brought back, at least in part.
        restored_tokens: Prompt tokens that were not computed for that reason.
        num_restore_failures: Restores that brought less than was found.
        num_skipped_restores: Prefixes that were found, and computed because that is quicker.
        num_restoring: Requests that wait for pages now.
        num_held_pages: Device pages that copies use now.
        tiers: In the order of `--kv-offload`; none without it.
    """

    num_restores: int = 0
    restored_tokens: int = 0
    num_restore_failures: int = 0
    num_skipped_restores: int = 0
    num_restoring: int = 0
    num_held_pages: int = 0
    tiers: list[KvTierMetrics] = []


class EngineMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Gauges of now and counters since start (cumulative, so that readers may miss snapshots).

    Page counts: free + used + cached = total; `kv_used_pages` belong to live requests, or are being
    copied by KV offload, and `kv_cached_pages` are reclaimable.

    Attributes:
        num_running: Requests that hold a slot of the batch.
        num_waiting: Requests that do not: `num_waiting_slots` because all slots are taken,
            `num_waiting_kv` because pages are missing.
        kv_total_snapshots: Slots for snapshots of state that is not kept in pages, all groups.
        kv_held_snapshots: Those that hold one.
        num_scheduled: Requests whose work began.
        queue_s: How long they had waited for that, together.
        prefix_query_tokens: Prompt tokens looked up in the prefix cache on the device.
        prefix_hit_tokens: Those of them that were found; `kv_offload` counts what tiers held.
        num_preemptions: How often a running request's pages were taken away.
        num_evicted_pages: Cached pages given up for new owners.
        num_evicted_snapshots: Snapshots given up for new ones.
        num_skipped_snapshots: Snapshots not taken because every slot was in use.
        num_dropped_event_batches: Steps whose KV events were not delivered.
    """

    num_running: int = 0
    num_waiting: int = 0
    num_waiting_slots: int = 0
    num_waiting_kv: int = 0
    kv_total_pages: int = 0
    kv_used_pages: int = 0
    kv_cached_pages: int = 0
    kv_total_snapshots: int = 0
    kv_held_snapshots: int = 0
    num_steps: int = 0
    num_scheduled: int = 0
    queue_s: float = 0.0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_query_tokens: int = 0
    prefix_hit_tokens: int = 0
    num_preemptions: int = 0
    num_evicted_pages: int = 0
    num_evicted_snapshots: int = 0
    num_skipped_snapshots: int = 0
    num_dropped_event_batches: int = 0
    num_finished_stop: int = 0
    num_finished_length: int = 0
    num_aborted: int = 0
    num_failed: int = 0
    num_rejected: int = 0
    kv_offload: KvOffloadMetrics = KvOffloadMetrics()


class HealthState(enum.StrEnum):
    """Whether an engine can serve."""

    STARTING = "starting"
    READY = "ready"
    STALLED = "stalled"
    DEAD = "dead"


class EngineHealth(msgspec.Struct, frozen=True):
    """State and, when it is not READY, the reason in words."""

    state: HealthState
    detail: str = ""


class EngineError(RuntimeError):
    """The engine is dead or could not start; the message says why."""


FrameSink = Callable[[StepFrame], None]
"""Receives each step's frame. Called from an engine-owned thread; must not block."""


class EngineHandle(Protocol):
    """A running engine. All methods are thread safe; none of them waits for a step."""

    @property
    def info(self) -> EngineInfo:
        """Facts about the engine."""
        ...

    def connect(self, sink: FrameSink) -> None:
        """Deliver every later frame to `sink`. Call once, before the first `submit`."""
        ...

    def submit(self, request: GenerateRequest) -> None:
        """Queue a request; its events arrive at the sink, ending in exactly one terminal.

        Raises:
            EngineError: The engine is dead.
        """
        ...

    def abort(self, request_id: int) -> None:
        """Ask to end a request; its terminal follows. Unknown and ended ids are ignored."""
        ...

    def metrics(self) -> EngineMetrics:
        """The newest metrics snapshot."""
        ...

    def health(self) -> EngineHealth:
        """Whether the engine lives and steps."""
        ...

    def reset_prefix_cache(self, *, device_only: bool = False) -> None:
        """Drop every cached KV page that no live request uses, before later submissions run.

        Args:
            device_only: Whether to keep those in host memory. Tiers behind it keep theirs always.
        """
        ...

    def close(self) -> None:
        """Fail open requests, stop the engine and wait until its threads or process are gone."""
        ...
