"""What the plugin host sees of the server: it adds `serve`. Imports nothing heavy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.plugin import hookimpl
from pegainfer_server.options import ServeOptions

if TYPE_CHECKING:
    from pegainfer_core.plugin import CommandRegistry, PreparedLaunch

__pegainfer_api__ = "1.0"


@hookimpl
def register_commands(cli: CommandRegistry) -> None:
    """Add the server's commands."""
    cli.add_launch_command(
        "serve",
        summary="serve a model over an OpenAI-compatible HTTP API",
        options=ServeOptions,
        run=_serve,
    )


def _serve(launch: PreparedLaunch, options: ServeOptions) -> int:
    from pegainfer_server.serve_command import serve

    return serve(launch, options)
