"""`pegainfer bench kernels`: each op of a decoder against the limit of the device, as a table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pegainfer_bench.kernels import (
    QWEN3_4B,
    Cases,
    DecoderBench,
    DecoderSizes,
    DeviceLimits,
    measure_limits,
)
from pegainfer_bench.report import write_json
from pegainfer_core.backend import choose_backend
from pegainfer_core.plugin import CommandFault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pegainfer_bench.kernels import Case
    from pegainfer_bench.kernels_options import KernelsOptions

_MAX_ROWS = 256
_MAX_TOKENS = 65_536


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One op at one size.

    Attributes:
        op: Its name.
        size: Of the step.
        time_us: Of one call.
        limit_us: The least time for its bytes and FLOPs.
        bytes: That it must move.
        flops: That it must do.
    """

    op: str
    size: str
    time_us: float
    limit_us: float
    bytes: float
    flops: float

    @property
    def share(self) -> float:
        """Of the limit."""
        return self.limit_us / self.time_us


class Plan(msgspec.Struct, frozen=True):
    """The sizes asked for."""

    rows: list[int]
    attention: list[tuple[int, int]]
    prefill: list[int]


def run(options: KernelsOptions) -> int:
    """Measure the limits, then every op, printing as it goes.

    Raises:
        ConfigError: There is no GPU, its software is missing, or memory is short.
        CommandFault: A flag is at fault.
    """
    plan = parse_plan(options)
    backend = choose_backend(options.backend)
    sizes = QWEN3_4B if options.model is None else DecoderSizes.from_model(options.model)
    contexts = [context for _, context in plan.attention] + plan.prefill
    rows = plan.rows + [count for count, _ in plan.attention]
    bench = DecoderBench(
        backend,
        sizes,
        device=options.device,
        num_threads=options.threads,
        max_tokens=max([_MAX_ROWS, *plan.prefill]),
        max_rows=_MAX_ROWS,
        max_context=max([1, *contexts]),
        rotate_bytes=options.rotate_mib << 20,
        min_time_s=options.min_time,
    )
    assert max([1, *rows]) <= _MAX_ROWS
    try:
        limits = measure_limits(bench)
        _print_head(sizes, limits)
        measured = []
        for case in _cases(Cases(bench), plan):
            measured.append(_measure(bench, case, limits))
            _print_row(measured[-1])
    finally:
        bench.close()
    if options.output_json is not None:
        result = {"backend": backend, "decoder": sizes, "limits": limits, "ops": measured}
        write_json(Path(options.output_json), result, "--output-json")
    return 0


def parse_plan(options: KernelsOptions) -> Plan:
    """Read the lists of sizes.

    Raises:
        CommandFault: One is not of its form, or out of range.
    """
    attention = []
    for word in options.attention.split(","):
        match = re.fullmatch(r"(\d+)x(\d+)", word)
        if match is None:
            raise CommandFault(
                f"--attention {options.attention}: {word!r} is not ROWSxCONTEXT, such as 8x8192"
            )
        rows = _number("--attention", word, match[1], _MAX_ROWS)
        attention.append((rows, _number("--attention", word, match[2], 1 << 20)))
    return Plan(
        rows=[_number("--rows", options.rows, n, _MAX_ROWS) for n in options.rows.split(",")],
        attention=attention,
        prefill=[]
        if options.prefill == "0"
        else [
            # One token would be a decoding row.
            _number("--prefill", options.prefill, n, _MAX_TOKENS, 2)
            for n in options.prefill.split(",")
        ],
    )


def _number(flag: str, text: str, word: str, highest: int, lowest: int = 1) -> int:
    if not word.isdecimal() or not lowest <= int(word) <= highest:
        raise CommandFault(f"{flag} {text}: {word!r} is not a number from {lowest} to {highest}")
    return int(word)


def _cases(cases: Cases, plan: Plan) -> Iterator[Case]:
    for rows in plan.rows:
        yield from cases.of_rows(rows)
    for rows, context in plan.attention:
        yield from cases.of_attention(rows, context)
    for tokens in plan.prefill:
        yield from cases.of_prefill(tokens)


def _measure(bench: DecoderBench, case: Case, limits: DeviceLimits) -> Row:
    # A batch of its own: backends note on it what one op leaves to the next.
    seconds = bench.time_s(bench.backend.upload(case.metadata), case.work) / case.num_calls
    return Row(
        op=case.op,
        size=case.size,
        time_us=1e6 * seconds,
        limit_us=1e6 * limits.limit_s(case.num_bytes, case.flops),
        bytes=case.num_bytes,
        flops=case.flops,
    )


def _print_head(sizes: DecoderSizes, limits: DeviceLimits) -> None:
    print(f"{sizes.name} on {limits.device}")
    print(
        f"measured limits: read {limits.read_bytes_per_s / 1e9:,.1f} GB/s ({limits.read_by}), "
        f"copy {limits.copy_bytes_per_s / 1e9:,.1f} GB/s (read + written), "
        f"products {limits.flops_per_s / 1e12:,.2f} TFLOP/s"
    )
    heads = f"{'time us':>10}{'limit us':>10}{'GB/s':>9}{'TFLOP/s':>9}{'of limit':>10}"
    print(f"{'op':<14}{'size':<14}{heads}", flush=True)


def _print_row(row: Row) -> None:
    gigabytes = row.bytes / row.time_us / 1e3
    teraflops = row.flops / row.time_us / 1e6
    print(
        f"{row.op:<14}{row.size:<14}{row.time_us:>10.2f}{row.limit_us:>10.2f}"
        f"{gigabytes:>9.1f}{teraflops:>9.2f}{100 * row.share:>9.1f}%",
        flush=True,
    )
