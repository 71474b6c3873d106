"""`pegainfer serve`: a prepared launch and the server's flags to an exit code."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import TYPE_CHECKING

from pegainfer_core import __version__
from pegainfer_server.access import is_loopback
from pegainfer_server.listener import bind, url
from pegainfer_server.loading import Loading
from pegainfer_server.log_output import LogOutput
from pegainfer_server.settings import ServerSettings, refuse_taken_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.plugin import PreparedLaunch
    from pegainfer_server.options import ServeOptions
    from pegainfer_server.served_model import ServedModel


def serve(launch: PreparedLaunch, options: ServeOptions) -> int:
    """Serve until a signal comes or the engine dies.

    Returns:
        The exit code.

    Raises:
        UserFault: A flag, the port or a file of the checkpoint is at fault.
        ConfigError: The checkpoint is at fault.
        EngineError: The engine could not start.
    """
    settings = ServerSettings.resolve(
        options, launch.context.model_dir, lora=launch.plan.capabilities.lora
    )
    refuse_taken_names(launch.context.options.lora, settings.model_names)
    as_json = options.log_format == "json"
    say = LogOutput(as_json=as_json, access_log=options.access_log).say
    if as_json:  # Else the command line has told them.
        for note in launch.plan.notes:
            say(note)
    sock = bind(options.host, options.port, stall_timeout_s=options.stall_timeout)
    where = url(sock, tls=settings.tls is not None)
    started_s = time.monotonic()
    say(f"pegainfer {__version__} on {where}, loading {launch.context.model_dir}")

    def on_ready(model: ServedModel) -> None:
        # What was loaded lives as long as the process: a full collection that walks it takes 80 ms.
        gc.collect()
        gc.freeze()
        _say_ready(say, model, where, settings, time.monotonic() - started_s)

    loading = Loading(
        launch,
        in_process=options.in_process,
        generation_config=options.generation_config,
        tool_call_parser=options.tool_call_parser,
        reasoning_parser=options.reasoning_parser,
        json_logs=as_json,
    )
    # Takes about as long as the rest of this start, and the engine is on its way by now.
    import uvloop

    from pegainfer_server.lifecycle import Lifecycle

    async def run() -> int:
        lifecycle = Lifecycle(sock, settings, launch.host, loading.result, on_ready)
        return await lifecycle.run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def _say_ready(
    say: Callable[[str], None],
    model: ServedModel,
    where: str,
    settings: ServerSettings,
    took_s: float,
) -> None:
    info = model.info
    say(f"ready on {where} after {took_s:.1f} s: {info.family} on {info.backend}")
    say(f"  model      {', '.join(model.names)}; context {info.max_model_len} tokens")
    if info.adapters:
        names = ", ".join(adapter.name for adapter in info.adapters)
        say(f"  adapters   {names}")
    defaults = ", ".join(f"{name} {value}" for name, value in model.sampling_defaults.items())
    say(f"  sampling   {defaults or 'temperature 1.0'} (unless a request says otherwise)")
    say(f"  API keys   {_told_keys(settings)}")


def _told_keys(settings: ServerSettings) -> str:
    if settings.key_digests:
        return f"{len(settings.key_digests)} accepted"
    if is_loopback(settings.host):
        return "none needed"
    return "none needed by whoever reaches this address; --api-key-file asks for one"
