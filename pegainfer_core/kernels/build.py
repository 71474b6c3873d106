"""Builds missing kernels in parallel compiler processes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

import msgspec

from pegainfer_core.kernels.errors import KernelError
from pegainfer_core.kernels.job import Answer, Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pegainfer_core.kernels.arch import Arch
    from pegainfer_core.kernels.cache import KernelCache
    from pegainfer_core.kernels.spec import KernelSpec

    Progress = Callable[[int, int], None]

_MAX_WORKERS: Final = 16
_JOBS_A_WORKER: Final = 2
"""Starting a compiler costs about as much as one kernel."""


def build_kernels(
    cache: KernelCache,
    specs: Iterable[KernelSpec],
    archs: Iterable[Arch],
    *,
    progress: Progress | None = None,
) -> int:
    """Build what the cache lacks.

    Args:
        cache: Where kernels are looked up and stored.
        specs: Those wanted.
        archs: For each of these architectures.
        progress: Told of kernels done and kernels in all.

    Returns:
        How many were built.

    Raises:
        KernelError: Triton or NVRTC is not installed, or a kernel does not compile.
    """
    wanted = list(specs)
    jobs = [Job(spec=spec, arch=arch) for arch in archs for spec in cache.missing(wanted, arch)]
    if not jobs:
        return 0
    in_triton = [job for job in jobs if job.spec.language == "triton"]
    if in_triton and importlib.util.find_spec("triton") is None:
        raise KernelError(
            f"{len(in_triton)} kernels for sm_{jobs[0].arch} are not in {cache.folder} and Triton, "
            f"which builds them, is not installed; install it: {sys.executable} -m pip install "
            "triton"
        )
    done = 0
    for answer in _compile(jobs):
        if answer.entry is None:
            raise KernelError(answer.error)
        cache.store(answer.entry, answer.code)
        done += 1
        if progress is not None:
            progress(done, len(jobs))
    return done


def _compile(jobs: list[Job]) -> Iterator[Answer]:
    """Answers in the order they come."""
    todo: SimpleQueue[Job] = SimpleQueue()
    answers: SimpleQueue[Answer] = SimpleQueue()
    for job in jobs:
        todo.put(job)
    num_workers = min(os.cpu_count() or 1, _MAX_WORKERS, -(-len(jobs) // _JOBS_A_WORKER))
    with ThreadPoolExecutor(num_workers, "kernel-build") as pool:
        for _ in range(num_workers):
            pool.submit(_feed, todo, answers)
        try:
            for _ in jobs:
                yield answers.get()
        finally:
            _drain(todo)


def _feed(todo: SimpleQueue[Job], answers: SimpleQueue[Answer]) -> None:
    """Give jobs to one compiler process until none is left."""
    with subprocess.Popen(
        [sys.executable, "-m", "pegainfer_core.kernels.compiler"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        while True:
            try:
                job = todo.get_nowait()
            except Empty:
                break
            answers.put(_ask(process, job))
        process.stdin.close()


def _ask(process: subprocess.Popen[bytes], job: Job) -> Answer:
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(msgspec.json.encode(job) + b"\n")
        process.stdin.flush()
    except BrokenPipeError:
        pass
    line = process.stdout.readline()
    where = f"{job.spec.label} for sm_{job.arch}"
    if not line:
        return Answer(error=f"the compiler process ended while it compiled {where}")
    answer = msgspec.json.decode(line, type=Answer)
    return Answer(error=f"cannot compile {where}: {answer.error}") if answer.error else answer


def _drain(todo: SimpleQueue[Job]) -> None:
    while True:
        try:
            todo.get_nowait()
        except Empty:
            return
