"""Opens KV offload as the core's options ask for it, the same way for every family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.engine.kv_offload import NoOffload

if TYPE_CHECKING:
    from pegainfer_core.backend import Backend, KvLayout, KvPool, StateLayout, StatePool
    from pegainfer_core.contract import LaunchContext
    from pegainfer_core.engine.kv_offload import KvOffload
    from pegainfer_core.kv import KvManager


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
    from pegainfer_core.offload import HostGrowth, HostPool, OffloadThread, RecordLayout
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
    mover = backend.page_mover(pages)
    pool = HostPool(layouts[0].record_bytes)
    growth = HostGrowth(pool, mover, host_bytes)
    thread = OffloadThread(pool, mover, layouts[0], kv.page_tokens, tiers)
    thread.start()
    if state_mover is None:
        return Offloader(kv, pool, thread, mover, identity, growth.close)
    state_pool = HostPool(layouts[STATE_GROUP].record_bytes)
    state_growth = HostGrowth(state_pool, state_mover, host_bytes)
    state_thread = OffloadThread(
        state_pool, state_mover, layouts[STATE_GROUP], kv.page_tokens, tiers,
        closes_tiers=False, name="pegainfer-offload-states",
    )  # fmt: skip
    state_thread.start()
    lane = SnapshotLane(kv, state_pool, state_thread, state_mover, identity, first_snapshot)

    def close() -> None:
        growth.close()
        state_growth.close()

    return StatefulOffloader(kv, pool, thread, mover, identity, lane, close)
