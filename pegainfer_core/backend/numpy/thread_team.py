"""Threads that share out large matrix products.

OpenBLAS's own threads wait for each other by yielding the processor, several times in one product
of matrices. On cores that other programs use too, each of those waits lasts a time slice, and a
step of half a second takes six. Threads that sleep until they are woken do not have that fault;
but waking takes longer than one product with a vector can afford, so those are left to OpenBLAS
where it does well. Both ways give the same bits: a step's result must not depend on who served it.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.backend.numpy.blas_threads import BlasThreads

    Task = Callable[[], object]

MIN_SHARED_WORK: Final = 1 << 21
"""Multiply-adds from which waking the helpers pays; smaller products are the caller's alone."""


class ThreadTeam:
    """The calling thread and its helpers, as many in all as the library has threads.

    Args:
        blas: The library, which has a single thread until `close`, but for what it is lent; None
            when its threads cannot be set, and then there are no helpers.

    Attributes:
        by_library: Whether products with few tokens are lent the library's threads in this step.
        alternates: Whether some steps are served so; then products with few tokens are always cut
            where the library would cut them.
    """

    def __init__(self, blas: BlasThreads | None) -> None:
        self._blas = blas
        self._num_threads = 1 if blas is None else blas.own()
        self._helpers = [_Helper(i) for i in range(1, self._num_threads)]
        self._let_go: Callable[[], object] | None = None
        if blas is not None and self._num_threads > 1:
            blas.hold()
            self._let_go = weakref.finalize(self, blas.release)
        self.by_library = False
        self.alternates = False

    @property
    def size(self) -> int:
        """Threads of the team, the caller's included."""
        return self._num_threads

    def lend(self, task: Task) -> None:
        """Run a task while the library has its threads."""
        if self._blas is None or self._num_threads == 1:
            task()
            return
        self._blas.set(self._num_threads)
        try:
            task()
        finally:
            self._blas.set(1)

    def run(self, tasks: list[Task]) -> None:
        """Run at most `size` tasks side by side, the first of them here.

        Raises:
            BaseException: What a task raised.
        """
        helpers = self._helpers[: len(tasks) - 1]
        for helper, task in zip(helpers, tasks[1:], strict=True):
            helper.start(task)
        try:
            tasks[0]()
        finally:
            faults = [fault for helper in helpers if (fault := helper.wait()) is not None]
        for fault in faults:
            raise fault

    def close(self) -> None:
        """Give the library its threads back, and end the helpers."""
        if self._let_go is not None:
            self._let_go()
        for helper in self._helpers:
            helper.close()
        self._helpers = []
        self._num_threads = 1


class _Helper:
    """One thread that sleeps between tasks."""

    def __init__(self, index: int) -> None:
        self._task: Task | None = None
        self._fault: BaseException | None = None
        self._ready, self._done = threading.Lock(), threading.Lock()
        self._ready.acquire()
        self._done.acquire()
        self._thread = threading.Thread(target=self._loop, name=f"products-{index}", daemon=True)
        self._thread.start()

    def start(self, task: Task | None) -> None:
        self._task = task
        self._ready.release()

    def wait(self) -> BaseException | None:
        self._done.acquire()
        fault, self._fault = self._fault, None
        return fault

    def close(self) -> None:
        self.start(None)
        self._thread.join()

    def _loop(self) -> None:
        while True:
            self._ready.acquire()
            task, self._task = self._task, None
            if task is None:
                return
            try:
                task()
            except BaseException as fault:  # it is the caller's, who waits for it
                self._fault = fault
            del task
            self._done.release()
