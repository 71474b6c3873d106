"""The hooks a plugin may implement. Implementations may leave out any argument they do not need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.plugin.api import hookspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pegainfer_core.contract import EngineHandle, ServePlan
    from pegainfer_core.plugin.command import CommandRegistry
    from pegainfer_core.plugin.extension import KvTierFactory
    from pegainfer_core.plugin.family import ModelFamily
    from pegainfer_core.plugin.request_record import RequestRecord
    from pegainfer_core.text import ReasoningParserFactory, ToolParserFactory


@hookspec
def model_families() -> Sequence[ModelFamily]:  # type: ignore[empty-body]
    """Offer model families; called once, right after the plugin was loaded."""


@hookspec
def register_commands(cli: CommandRegistry) -> None:
    """Add commands to the `pegainfer` command line."""


@hookspec
def kv_tiers() -> Sequence[KvTierFactory]:  # type: ignore[empty-body]
    """Offer tiers that `--kv-offload NAME` can choose."""


@hookspec
def tool_parsers() -> Mapping[str, ToolParserFactory]:  # type: ignore[empty-body]
    """Offer parsers of tool calls by the names that `--tool-call-parser` and families choose."""


@hookspec
def reasoning_parsers() -> Mapping[str, ReasoningParserFactory]:  # type: ignore[empty-body]
    """Offer parsers of reasoning by the names that `--reasoning-parser` and families choose."""


@hookspec
def server_routes(app_config: object) -> Sequence[object]:  # type: ignore[empty-body]
    """Offer route handlers of the server's web framework; they cannot replace its own paths."""


@hookspec
def engine_ready(engine: EngineHandle, family: ModelFamily, plan: ServePlan) -> None:
    """An engine has started and `/health` is about to turn 200; raising stops the server."""


@hookspec
def engine_stopping(engine: EngineHandle) -> None:
    """A graceful stop begins; called in the reverse order of `engine_ready`."""


@hookspec
def request_finished(record: RequestRecord) -> None:
    """A request has ended; called off the hot path, for logs and metrics."""
