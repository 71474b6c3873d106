"""What an engine says of itself, put together the same way for every family."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pegainfer_core.contract import EngineInfo

if TYPE_CHECKING:
    from pegainfer_core.contract import LaunchContext, ServePlan
    from pegainfer_core.engine.adapters import AdapterTable
    from pegainfer_core.kv import KvManager


def engine_info(
    context: LaunchContext, plan: ServePlan, kv: KvManager, adapters: AdapterTable | None = None
) -> EngineInfo:
    """Describe an engine that is about to serve.

    Args:
        context: Of its launch.
        plan: As it is served.
        kv: Its pages.
        adapters: Its adapters, if it takes any.
    """
    return EngineInfo(
        family=context.family,
        backend=plan.backend,
        vocab_size=plan.vocab_size,
        max_model_len=plan.max_model_len,
        page_tokens=plan.page_tokens,
        num_pages=kv.pool.num_total,
        max_num_seqs=plan.max_num_seqs,
        capabilities=plan.capabilities,
        pid=os.getpid(),
        adapters=adapters.infos if adapters is not None else [],
    )
