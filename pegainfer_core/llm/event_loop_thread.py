"""An event loop on a thread of its own, for callers that may have a running loop themselves."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


class EventLoopThread:
    """Runs coroutines for synchronous code, notebooks included."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon, so that a program which never closes it can still end.
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine to its end and return what it returns.

        An exception in the calling thread meanwhile, such as Ctrl-C, cancels it and waits for it.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                future.cancel()
                asyncio.run_coroutine_threadsafe(self._settle(), self._loop).result()
            raise

    def close(self) -> None:
        """Wait for what still runs, then stop the loop and its thread.

        Only for when nothing can run for ever any more: streams of a closed engine have ended.
        """
        self.run(self._finish_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    async def _finish_tasks(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)

    async def _settle(self) -> None:
        """Wait for cancelled work to clean up after itself."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        cancelled = [task for task in others if task.cancelling()]
        await asyncio.gather(*cancelled, return_exceptions=True)
