"""`pegainfer bench startup`: starts a server several times; times to ready, and memory."""

from __future__ import annotations

import random
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from pegainfer_bench.report import write_json
from pegainfer_bench.startup import (
    ProcessMemory,
    ServerProcess,
    evict,
    read_through,
    resident_share,
    serve_words,
    session_memory,
    weight_files,
)
from pegainfer_core.plugin import CommandFault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pegainfer_bench.startup_options import StartupOptions
    from pegainfer_core.plugin import PreparedLaunch


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """One start; seconds from the making of the process unless said otherwise.

    Attributes:
        cached_share: Share of the checkpoint's files that lay in the page cache.
        import_s: Until it listened: interpreter, imports, plan.
        load_s: From there until it was ready.
        ready_s: Until `/health` answered 200.
        first_request_s: From sending the first request to its first token.
        first_token_s: Until that token, had the request been sent when it was ready.
        pss_ready_mib: Of all its processes, when ready.
        pss_mib: Of all its processes, after the first request.
        processes: After the first request.
    """

    cached_share: float
    import_s: float
    load_s: float
    ready_s: float
    first_request_s: float
    first_token_s: float
    pss_ready_mib: float
    pss_mib: float
    processes: list[ProcessMemory]


_ROWS: Final = (
    ("imports and plan s", "import_s"),
    ("loading s", "load_s"),
    ("ready s", "ready_s"),
    ("first request s", "first_request_s"),
    ("first token s", "first_token_s"),
    ("PSS when ready MiB", "pss_ready_mib"),
    ("PSS after a request MiB", "pss_mib"),
    ("files in page cache %", "cached_share"),
)


def run(launch: PreparedLaunch, options: StartupOptions) -> int:
    """Start, ask once, measure, stop; again and again.

    Raises:
        CommandFault: The server did not start or did not answer.
    """
    plan = launch.plan
    if options.input_len >= plan.max_model_len:
        raise CommandFault(
            f"--input-len {options.input_len} leaves no room in {plan.max_model_len} tokens"
        )
    words = serve_words(launch)
    files = weight_files(Path(launch.context.model_dir))
    rng = random.Random(0)
    starts = []
    for _ in range(options.num_starts):
        (evict if options.page_cache == "cold" else read_through)(files)
        ids = [rng.randrange(plan.vocab_size) for _ in range(options.input_len)]
        starts.append(_start(words, files, ids, options.start_timeout))
    _report(options, starts)
    return 0


def _start(words: list[str], files: list[Path], ids: list[int], timeout_s: float) -> Start:
    cached_share = resident_share(files)
    with ServerProcess(words, timeout_s) as server:
        import_s = server.wait_listening()
        ready_s = server.wait_ready()
        idle = session_memory(server.session)
        first_request_s = server.first_token(ids)
        used = session_memory(server.session)
    return Start(
        cached_share=cached_share,
        import_s=import_s,
        load_s=ready_s - import_s,
        ready_s=ready_s,
        first_request_s=first_request_s,
        first_token_s=ready_s + first_request_s,
        pss_ready_mib=sum(process.pss_mib for process in idle),
        pss_mib=sum(process.pss_mib for process in used),
        processes=used,
    )


def _report(options: StartupOptions, starts: Sequence[Start]) -> None:
    heads = [f"start {number}" for number in range(1, len(starts) + 1)]
    print(f"{options.page_cache} page cache".ljust(26) + "".join(f"{h:>10}" for h in heads), end="")
    print(f"{'median':>10}")
    medians = {}
    for label, field in _ROWS:
        values = [getattr(start, field) for start in starts]
        medians[field] = statistics.median(values)
        scale, digits = (100, 0) if field == "cached_share" else (1, 1 if "MiB" in label else 3)
        cells = "".join(f"{scale * v:>10.{digits}f}" for v in [*values, medians[field]])
        print(f"{label:<26}{cells}")
    for process in starts[-1].processes:
        print(f"  process {process.pid} {process.name}: PSS {process.pss_mib:.1f} MiB")
    if options.output_json is not None:
        result = {"page_cache": options.page_cache, "median": medians, "starts": list(starts)}
        write_json(Path(options.output_json), result, "--output-json")
