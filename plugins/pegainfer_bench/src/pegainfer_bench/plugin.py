"""What the plugin host sees of the benchmarks: the `bench` commands. Imports nothing heavy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_bench.kernels_options import KernelsOptions
from pegainfer_bench.offline_options import LatencyOptions, ThroughputOptions
from pegainfer_bench.plot_options import PlotOptions
from pegainfer_bench.serve_options import ServeBenchOptions
from pegainfer_bench.startup_options import StartupOptions
from pegainfer_core.plugin import hookimpl

if TYPE_CHECKING:
    from pegainfer_core.plugin import CommandRegistry, PreparedLaunch

__pegainfer_api__ = "1.0"


@hookimpl
def register_commands(cli: CommandRegistry) -> None:
    """Add the benchmarks."""
    cli.add_command(
        "bench serve",
        summary="put load on an OpenAI-compatible server and report latencies",
        options=ServeBenchOptions,
        run=_serve,
    )
    cli.add_launch_command(
        "bench latency",
        summary="time one batch of requests through an engine in this process",
        options=LatencyOptions,
        run=_latency,
    )
    cli.add_launch_command(
        "bench throughput",
        summary="time many requests, all at once, through an engine in this process",
        options=ThroughputOptions,
        run=_throughput,
    )
    cli.add_launch_command(
        "bench startup",
        summary="start `pegainfer serve` several times: times to ready and first token, memory",
        options=StartupOptions,
        run=_startup,
    )
    cli.add_command(
        "bench kernels",
        summary="time each op of a decoder against the byte or FLOP limit of the device",
        options=KernelsOptions,
        run=_kernels,
    )
    cli.add_command(
        "bench plot",
        summary="draw results of `bench serve` over load",
        options=PlotOptions,
        run=_plot,
    )


def _serve(options: ServeBenchOptions) -> int:
    from pegainfer_bench.serve_command import run

    return run(options)


def _latency(launch: PreparedLaunch, options: LatencyOptions) -> int:
    from pegainfer_bench.latency_command import run

    return run(launch, options)


def _throughput(launch: PreparedLaunch, options: ThroughputOptions) -> int:
    from pegainfer_bench.throughput_command import run

    return run(launch, options)


def _startup(launch: PreparedLaunch, options: StartupOptions) -> int:
    from pegainfer_bench.startup_command import run

    return run(launch, options)


def _kernels(options: KernelsOptions) -> int:
    from pegainfer_bench.kernels_command import run

    return run(options)


def _plot(options: PlotOptions) -> int:
    from pegainfer_bench.plot_command import run

    return run(options)
