"""Opens KV offload as the core's options ask for it, the same way for every family."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pegainfer_core.engine.kv_offload import NoOffload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_core.backend import (
        Backend,
        KvLayout,
        KvPool,
        PageMover,
        StateLayout,
        StatePool,
    )
    from pegainfer_core.contract import LaunchContext
    from pegainfer_core.engine.kv_offload import KvOffload
    from pegainfer_core.kv import KvManager
    from pegainfer_core.offload import HostGrowth, HostPool, OffloadThread, RecordLayout
    from pegainfer_core.offload.guard import GuardedTier


def open_offload(
    context: LaunchContext,
    backend: Backend,
    pages: KvPool,
    kv: KvManager,
    *,
    numerics: str = "",
    states: StatePool | None = None,
    first_snapshot: int = 0,
) -> KvOffload:
    """Start saving to and restoring from the tiers of `--kv-offload`; close it with the engine.

    Host memory is taken by a thread of its own, so this returns before there is much of it.

    Args:
        context: Of the launch.
        backend: Where the model runs; this is its thread.
        pages: The memory of the pages.
        kv: Who owns which of them.
        numerics: Whatever changes the values in a page beside what core knows of, such as a
            version of the family's own kernels.
        states: The memory of recurrent states, where the manager has a group of snapshots: a prefix
            then comes back with the snapshot behind it, or not at all. Pages and snapshots get half
            of each tier.
        first_snapshot: Their first slot among the states.

    Raises:
        ConfigError: A tier cannot be opened.
    """
    options = context.options
    if options.kv_offload is None:
        return NoOffload(kv)
    # Only here: a process that offloads nothing pays for none of it.
    from pegainfer_core.engine.offloader import Offloader
    from pegainfer_core.engine.snapshot_lane import STATE_GROUP, SnapshotLane
    from pegainfer_core.engine.stateful_offloader import StatefulOffloader
    from pegainfer_core.offload import RecordLayout
    from pegainfer_core.offload.identity import model_identity
    from pegainfer_core.offload.tiers import open_tiers

    layouts = {0: RecordLayout(page_bytes=pages.layout.page_bytes)}
    shapes: dict[int, KvLayout | StateLayout] = {0: pages.layout}
    state_mover = None
    if states is not None and kv.snapshots:
        state_mover = backend.state_mover(states)
        layouts[STATE_GROUP] = RecordLayout(page_bytes=state_mover.slot_bytes)
        shapes[STATE_GROUP] = states.layout
    identity = model_identity(
        context,
        shapes,
        backend=backend.name,
        dtype=pages.layout.dtype.value,
        numerics=numerics,
    )
    tiers = open_tiers(context, identity, layouts)
    host_bytes = int(options.kv_offload_host_gib * 2**30) // len(layouts)
    open_lane = partial(_open_lane, tiers=tiers, page_tokens=kv.page_tokens, host_bytes=host_bytes)
    mover = backend.page_mover(pages)
    own = open_lane(mover, layouts[0])
    if state_mover is None:
        return Offloader(kv, own.pool, own.thread, mover, identity, own.growth.close)
    other = open_lane(
        state_mover, layouts[STATE_GROUP], closes_tiers=False, name="pegainfer-offload-states"
    )
    lane = SnapshotLane(kv, other.pool, other.thread, state_mover, identity, first_snapshot)

    def close() -> None:
        own.growth.close()
        other.growth.close()

    return StatefulOffloader(kv, own.pool, own.thread, mover, identity, lane, close)


class _Lane(NamedTuple):
    """What one kind of records has for itself: host memory, who takes it, and who copies."""

    pool: HostPool
    growth: HostGrowth
    thread: OffloadThread


def _open_lane(
    mover: PageMover,
    layout: RecordLayout,
    *,
    tiers: Sequence[GuardedTier],
    page_tokens: int,
    host_bytes: int,
    closes_tiers: bool = True,
    name: str = "pegainfer-offload",
) -> _Lane:
    """A lane at work; one of those that share the tiers closes them."""
    from pegainfer_core.offload import HostGrowth, HostPool, OffloadThread

    pool = HostPool(layout.record_bytes)
    growth = HostGrowth(pool, mover, host_bytes)
    thread = OffloadThread(
        pool, mover, layout, page_tokens, tiers, closes_tiers=closes_tiers, name=name
    )
    thread.start()
    return _Lane(pool, growth, thread)
