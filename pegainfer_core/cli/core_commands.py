"""Core's own commands: their flags here, their work in modules that are imported when run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

if TYPE_CHECKING:
    from pegainfer_core.cli.command_table import CommandTable
    from pegainfer_core.plugin.host import PluginHost

_MODEL = Meta(
    description="checkpoint folder, or a repo id in the Hugging Face cache",
    extra={"positional": True, "metavar": "MODEL"},
)
_DIR = {"metavar": "DIR"}
_JSON = Meta(description="print JSON")
_FAMILY = Meta(description="model family to use without asking which one claims the checkpoint")


class PluginsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Flags of `pegainfer plugins`."""

    json: Annotated[bool, _JSON] = False
    all: Annotated[bool, Meta(description="also those that PEGAINFER_PLUGINS leaves out")] = False


class ProbeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Flags of `pegainfer probe`."""

    model: Annotated[str, _MODEL]
    json: Annotated[bool, _JSON] = False
    family: Annotated[str | None, _FAMILY] = None


class DoctorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Flags of `pegainfer doctor`."""


class DummyWeightsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Flags of `pegainfer dummy-weights`."""

    model: Annotated[str, _MODEL]
    out: Annotated[
        str | None,
        Meta(description="folder to write to (default: MODEL)", extra=_DIR),
    ] = None
    seed: Annotated[int, Meta(description="seed of the values")] = 0
    num_shards: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="weight files (default: by size)")
    ] = None
    family: Annotated[str | None, _FAMILY] = None


class KernelsBuildOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Flags of `pegainfer kernels build`."""

    arch: Annotated[
        str,
        Meta(description="GPU architectures, such as sm_90 or sm_80,sm_90; all builds for each"),
    ] = "all"
    out: Annotated[
        str | None, Meta(description="folder to build into (default: the user's cache)", extra=_DIR)
    ] = None


def add_core_commands(table: CommandTable, host: PluginHost) -> None:
    """Add the commands that need no plugin."""

    def plugins(options: PluginsOptions) -> int:
        from pegainfer_core.cli.plugins_command import run

        return run(host, options)

    def probe(options: ProbeOptions) -> int:
        from pegainfer_core.cli.probe_command import run

        return run(host, options)

    def doctor(options: DoctorOptions) -> int:
        from pegainfer_core.cli.doctor_command import run

        return run(host)

    def dummy_weights(options: DummyWeightsOptions) -> int:
        from pegainfer_core.cli.dummy_weights_command import run

        return run(host, options)

    def kernels_build(options: KernelsBuildOptions) -> int:
        from pegainfer_core.cli.kernels_command import build

        return build(options)

    table.add_command(
        "kernels build",
        summary="compile GPU kernels ahead of time; needs Triton, no GPU",
        options=KernelsBuildOptions,
        run=kernels_build,
    )
    table.add_command(
        "plugins", summary="list installed plugins", options=PluginsOptions, run=plugins
    )
    table.add_command(
        "probe", summary="say which family serves a checkpoint", options=ProbeOptions, run=probe
    )
    table.add_command("doctor", summary="check this machine", options=DoctorOptions, run=doctor)
    table.add_command(
        "dummy-weights",
        summary="write seeded random weights for a config",
        options=DummyWeightsOptions,
        run=dummy_weights,
    )
