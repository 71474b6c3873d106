"""Loads adapters beside a running engine: files on a thread of their own, slots between steps."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from pegainfer_core.contract import AdapterError, AdapterInfo, AdapterProblem, EngineError
from pegainfer_core.engine.command import ChangeAdapters
from pegainfer_core.weights import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.engine.adapters import AdapterTable


class AdapterLoading:
    """The part of an engine handle that changes its adapters; thread safe.

    Args:
        send: Hands a change over to the engine's thread; raises `EngineError` if it has ended.

    Attributes:
        infos: Loaded adapters, by name; replaced as a whole.
    """

    def __init__(self, send: Callable[[ChangeAdapters], None]) -> None:
        self.infos: list[AdapterInfo] = []
        self._send = send
        self._table: AdapterTable | None = None
        # One at a time: each holds an adapter in memory.
        self._reading = threading.Lock()

    def serve(self, table: AdapterTable | None) -> None:
        """Begin; None for an engine without adapters."""
        self._table = table
        self._note()

    def load(self, name: str, path: str, *, replace: bool) -> Future[AdapterInfo]:
        """See `AdapterEngine.load_adapter`."""
        done = _started()
        work = partial(self._load, name, path, replace, done)
        threading.Thread(target=work, name="pegainfer-lora", daemon=True).start()
        return done

    def unload(self, name: str) -> Future[AdapterInfo]:
        """See `AdapterEngine.unload_adapter`."""
        done = _started()
        self._change(lambda table: table.remove(name), done)
        return done

    def _load(self, name: str, path: str, replace: bool, done: Future[AdapterInfo]) -> None:
        with self._reading:
            try:
                adapter = self._required().read(name, path)
            except ConfigError as error:
                done.set_exception(AdapterError(AdapterProblem.INVALID, str(error)))
                return
            except Exception as error:
                done.set_exception(error)
                return
            self._change(lambda table: table.install(adapter, replace=replace), done)
            # Before the next one is read.
            done.exception()

    def _change(
        self, make: Callable[[AdapterTable], AdapterInfo], done: Future[AdapterInfo]
    ) -> None:
        def change() -> AdapterInfo:
            try:
                return make(self._required())
            finally:
                self._note()

        command = ChangeAdapters(change)
        command.future.add_done_callback(partial(_pass_on, done))
        try:
            self._send(command)
        except EngineError as error:
            done.set_exception(error)

    def _note(self) -> None:
        if self._table is not None:
            self.infos = self._table.infos

    def _required(self) -> AdapterTable:
        if self._table is None:
            raise AdapterError(AdapterProblem.INVALID, "this engine takes no LoRA adapters")
        return self._table


def _started() -> Future[AdapterInfo]:
    """Whoever gives up waiting stops nothing."""
    future: Future[AdapterInfo] = Future()
    future.set_running_or_notify_cancel()
    return future


def _pass_on(done: Future[AdapterInfo], source: Future[AdapterInfo]) -> None:
    error = source.exception()
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(source.result())
