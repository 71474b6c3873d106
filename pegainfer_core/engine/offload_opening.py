"""Opens KV offload as the core's options ask for it, the same way for every family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.engine.kv_offload import NoOffload

if TYPE_CHECKING:
    from pegainfer_core.backend import Backend, KvPool
    from pegainfer_core.contract import LaunchContext
    from pegainfer_core.engine.kv_offload import KvOffload
    from pegainfer_core.kv import KvManager


def open_offload(
    context: LaunchContext, backend: Backend, pages: KvPool, kv: KvManager, *, numerics: str = ""
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

    Raises:
        ConfigError: A tier cannot be opened.
    """
    options = context.options
    if options.kv_offload is None:
        return NoOffload(kv)
    # Only here: a process that offloads nothing pays for none of it.
    from pegainfer_core.engine.offloader import Offloader
    from pegainfer_core.offload import HostGrowth, HostPool, OffloadThread, RecordLayout
    from pegainfer_core.offload.identity import model_identity
    from pegainfer_core.offload.tiers import open_tiers

    layout = RecordLayout(page_bytes=pages.layout.page_bytes)
    identity = model_identity(
        context,
        {0: pages.layout},
        backend=backend.name,
        dtype=pages.layout.dtype.value,
        numerics=numerics,
    )
    tiers = open_tiers(context, identity, {0: layout})
    mover = backend.page_mover(pages)
    pool = HostPool(layout.record_bytes)
    growth = HostGrowth(pool, mover, int(options.kv_offload_host_gib * 2**30))
    thread = OffloadThread(pool, mover, layout, kv.page_tokens, tiers)
    thread.start()
    return Offloader(kv, pool, thread, mover, identity, growth.close)
