"""Puts echo together: options in, a running engine out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pegainfer_core.contract import EngineInfo
from pegainfer_core.engine import BuiltEngine, LocalEngine
from pegainfer_echo.plugin import EchoOptions
from pegainfer_echo.scheduler import EchoScheduler

if TYPE_CHECKING:
    from pegainfer_core.contract import LaunchContext, ServePlan


def launch(context: LaunchContext, plan: ServePlan) -> LocalEngine:
    """Start an echo engine in this process."""
    options = msgspec.convert(context.family_options, EchoOptions)
    info = EngineInfo(
        family="echo",
        backend=plan.backend,
        vocab_size=plan.vocab_size,
        max_model_len=plan.max_model_len,
        page_tokens=plan.page_tokens,
        num_pages=0,
        max_num_seqs=plan.max_num_seqs,
        capabilities=plan.capabilities,
    )
    return LocalEngine(lambda: BuiltEngine(EchoScheduler(options, plan), info))
